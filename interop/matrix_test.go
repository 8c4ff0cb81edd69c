package interop

import (
	"fmt"
	"testing"

	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// carriage is how attachments travel between a client and a server.
type carriage int

const (
	// lanes: more than 16 KiB beside the stream, any size.
	lanes carriage = iota
	// inMessage: in offer form inside the message, within gdrpc's limit.
	inMessage
	// inField: as values of the declared field; both limits count.
	inField
	// byHand: as inField, filled and read by a stock client.
	byHand
	// unread: the peer is gdrpc by its Hello, but its grpc.Server is not:
	// requests fail, replies in the field arrive.
	unread
)

// matrix says how each client and each server carry attachments once they know
// each other. README.md has it for people.
var matrix = map[rig.ClientKind]map[rig.ServerKind]carriage{
	rig.GdrpcClient: {
		rig.GdrpcServer: lanes, rig.GdrpcServerOnNet: inMessage, rig.StockOnListener: unread, rig.StockServer: inField,
	},
	rig.MemoryClient: {
		rig.GdrpcServer: lanes, rig.GdrpcServerOnNet: inMessage, rig.StockOnListener: unread, rig.StockServer: inField,
	},
	rig.SharedClient: {
		rig.GdrpcServer: lanes, rig.GdrpcServerOnNet: inMessage, rig.StockOnListener: unread, rig.StockServer: inField,
	},
	rig.ForeignClient: {
		rig.GdrpcServer: inMessage, rig.GdrpcServerOnNet: inMessage, rig.StockOnListener: inField, rig.StockServer: inField,
	},
	rig.PlainClient: {
		rig.GdrpcServer: inMessage, rig.GdrpcServerOnNet: inMessage, rig.StockOnListener: unread, rig.StockServer: inField,
	},
	rig.StockClient: {
		rig.GdrpcServer: byHand, rig.GdrpcServerOnNet: byHand, rig.StockOnListener: byHand, rig.StockServer: byHand,
	},
}

// ask is one row of the matrix's table of calls.
type ask struct {
	name string
	call rig.Call
}

const (
	small = 1000
	large = 300_000
	mib5  = 5 << 20
)

var asks = []ask{
	{"empty", rig.Call{}},
	{"request", rig.Call{Request: rig.Series(1, large)}},
	{"reply", rig.Call{Order: rig.Order{Reply: rig.Series(2, large)}}},
	{"both", rig.Call{Request: rig.Series(3, large), Order: rig.Order{Reply: rig.Series(4, large+1)}}},
	{"small", rig.Call{Request: rig.Series(5, small, 0), Order: rig.Order{Reply: rig.Series(7, 0, small)}}},
	{"several", rig.Call{
		Request: rig.Series(10, 1, large, 0, 16<<10, 16<<10+1, 257, 65_537),
		Order:   rig.Order{Reply: rig.Series(20, 99_991, 3, 16<<10+1, 16<<10, 0)},
	}},
	{"bounce", rig.Call{Request: rig.Series(30, large, small), Order: rig.Order{Bounce: true}}},
	{"request of 5 MiB", rig.Call{Request: rig.Series(40, mib5)}},
	{"reply of 5 MiB", rig.Call{Order: rig.Order{Reply: rig.Series(41, mib5)}}},
	{"both of 5 MiB", rig.Call{Request: rig.Series(42, mib5), Order: rig.Order{Reply: rig.Series(43, mib5)}}},
}

// failure is the status that a call must end with.
type failure struct {
	code  codes.Code
	parts []string
}

var (
	overInline = &failure{codes.ResourceExhausted, []string{"inside the message; the limit is", "Config.InlineLimit", "grpc.MaxRecvMsgSize"}}
	overGRPC   = &failure{codes.ResourceExhausted, []string{"received message larger than max"}}
	notParsed  = &failure{codes.FailedPrecondition, []string{"must be made with gdrpc.NewServer", "failed to unmarshal the received message"}}
)

// wantFailure is how a call must fail between a client and a server; nil if it
// must succeed.
func wantFailure(client rig.ClientKind, server rig.ServerKind, call rig.Call) *failure {
	how := matrix[client][server]
	stockServer := server == rig.StockServer || server == rig.StockOnListener
	reply := call.Reply
	if call.Bounce {
		reply = call.Request
	}
	switch {
	case how == lanes:
	case how == unread && client == rig.PlainClient && total(call.Request) > 4<<20:
		return overInline
	case how == unread && len(call.Request) > 0:
		return notParsed
	case total(call.Request) > 4<<20 && how == byHand:
		return overGRPC
	case total(call.Request) > 4<<20:
		return overInline
	case total(reply) > 4<<20 && stockServer:
		return overGRPC
	case total(reply) > 4<<20:
		return overInline
	}
	return nil
}

func total(list []rig.Payload) (n int64) {
	for _, p := range list {
		n += p.Size
	}
	return n
}

// TestMatrix has every kind of client call every kind of server.
func TestMatrix(t *testing.T) {
	for _, server := range rig.ServerKinds() {
		s := rig.Serve(t, server, rig.ServerConfig{})
		for _, client := range rig.ClientKinds() {
			t.Run(fmt.Sprintf("%v/%v", server, client), func(t *testing.T) {
				c := rig.Dial(t, client, s.Addr, rig.ClientConfig{})
				for _, a := range asks {
					t.Run(a.name, func(t *testing.T) { requireCall(t, s, c, a.call) })
				}
			})
		}
	}
}

// requireCall makes a call and checks that it ends as the matrix says.
func requireCall(t *testing.T, s *rig.Server, c *rig.Client, call rig.Call) {
	t.Helper()
	r, err := c.Do(rig.Context(t), call)
	if want := wantFailure(c.Kind, s.Kind, call); want != nil {
		requireStatus(t, err, want.code, want.parts...)
		return
	}
	require.NoError(t, err)
	require.NoError(t, r.Wrong(call))
	require.Equal(t, wantSeen(c, s, call.Request), r.Seen.Paths)
	reply := call.Reply
	if call.Bounce {
		reply = call.Request
	}
	require.Equal(t, wantGot(c, s, reply), r.Paths)
	requireModes(t, c, s, r)
}

func requireStatus(t *testing.T, err error, code codes.Code, parts ...string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, code, status.Code(err), "%v", err)
	for _, p := range parts {
		require.ErrorContains(t, err, p)
	}
}

// wantSeen are the paths that the handler must see.
func wantSeen(c *rig.Client, s *rig.Server, list []rig.Payload) []string {
	if s.Pool == nil {
		return paths(list, rig.FieldPath, rig.FieldPath)
	}
	return wantGdrpc(c, s, list)
}

// wantGot are the paths that the client must see.
func wantGot(c *rig.Client, s *rig.Server, list []rig.Payload) []string {
	if c.Pool == nil {
		return paths(list, rig.FieldPath, rig.FieldPath)
	}
	return wantGdrpc(c, s, list)
}

func wantGdrpc(c *rig.Client, s *rig.Server, list []rig.Payload) []string {
	if matrix[c.Kind][s.Kind] == lanes && c.Kind == rig.MemoryClient {
		return paths(list, "inline", "ipc")
	}
	if matrix[c.Kind][s.Kind] == lanes {
		return paths(list, "inline", "soft")
	}
	return paths(list, "inline", "inline")
}

// paths names a path for each payload: one of up to 16 KiB is small.
func paths(list []rig.Payload, small, large string) []string {
	var all []string
	for _, p := range list {
		if p.Size <= 16<<10 {
			all = append(all, small)
		} else {
			all = append(all, large)
		}
	}
	return all
}

// modes are those of connections whose both ends are gdrpc's, with a part of
// the reason why there is no better one.
var modes = map[rig.ClientKind]struct{ mode, reason string }{
	rig.GdrpcClient:  {"soft-joined", ""},
	rig.MemoryClient: {"soft-joined", ""},
	rig.SharedClient: {"soft-shared", "joins refused: "},
	rig.PlainClient:  {"plain", "joins refused: "},
}

// requireModes checks what both ends know of the connection. A stock server's
// handler does not look.
func requireModes(t *testing.T, c *rig.Client, s *rig.Server, r *rig.Result) {
	t.Helper()
	want, ours := modes[c.Kind]
	switch {
	case !ours:
		require.Nil(t, r.Stats)
		require.Empty(t, r.Seen.Mode)
		return
	case s.Listener == nil:
		require.Equal(t, "plain", r.Stats.Mode.String())
		require.Regexp(t, "not a gdrpc peer|found to be no gdrpc server", r.Stats.Reason)
		return
	}
	require.Equal(t, want.mode, r.Stats.Mode.String())
	require.Contains(t, r.Stats.Reason, want.reason)
	if s.Pool != nil {
		require.Equal(t, want.mode, r.Seen.Mode)
		require.Contains(t, r.Seen.Reason, want.reason)
	}
}
