package process

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
)

// clientPart is what a client process has to do: call without a pause.
type clientPart struct {
	Addr    string
	Kind    rig.ClientKind
	Bulk    int // bulk lanes
	Workers int
	Call    rig.Call
}

func playClient(t *testing.T, parent *rig.Parent) {
	var p clientPart
	parent.Arg(t, &p)
	c := rig.Dial(t, p.Kind, p.Addr, rig.ClientConfig{Dialer: dialer.Config{BulkJoins: p.Bulk}})
	ctx, cancel := context.WithCancel(rig.Context(t))
	defer cancel()
	go func() {
		<-parent.Gone
		cancel()
	}()
	var wg sync.WaitGroup
	for range p.Workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				c.Do(ctx, p.Call) // the server's end is checked
			}
		})
	}
	wg.Wait()
}

// serverPart is what a server process has to do.
type serverPart struct {
	Addr string // Local, or what a process before had
}

func playServer(t *testing.T, parent *rig.Parent) {
	var p serverPart
	parent.Arg(t, &p)
	s := rig.Serve(t, rig.GdrpcServer, rig.ServerConfig{Inner: listenAgain(t, p.Addr)})
	parent.Say(t, s.Addr)
	<-parent.Gone
}

// listenAgain listens on an address that a process which was killed had a
// moment ago, or that a dial has taken for its own end meanwhile.
func listenAgain(t *testing.T, addr string) net.Listener {
	t.Helper()
	var l net.Listener
	var err error
	require.True(t, rig.Eventually(func() bool {
		l, err = net.Listen("tcp", addr)
		return err == nil
	}), "%v", err)
	return l
}

// startServer starts a server process and returns its address.
func startServer(t *testing.T, addr string) (*rig.Child, string) {
	t.Helper()
	child := rig.Start(t, "server", serverPart{Addr: addr})
	child.Hear(t, &addr)
	return child, addr
}

// round is what the dice of one round say.
type round struct {
	kind  rig.ClientKind // with lanes of its own or shared ones
	bulk  int            // bulk lanes
	call  rig.Call
	calls int           // that have begun when the moment comes,
	after time.Duration // and so long after
}

// throw makes a round. Transfers take milliseconds, so that most moments are in
// the middle of some.
func throw(t *testing.T, n int) round {
	dice := rig.Random(t, n)
	least, more := int64(1<<20), int64(12<<20)
	if rig.PathOverNIC(t) != conn.PathNone { // an emulated one is slow
		least, more = 128<<10, 1<<20
	}
	size := func() int64 { return least + dice.Int64N(more) }
	r := round{calls: 1 + dice.IntN(8), after: time.Duration(dice.Int64N(int64(12 * time.Millisecond)))}
	r.kind = []rig.ClientKind{rig.GdrpcClient, rig.MemoryClient, rig.MemoryClient, rig.SharedClient}[dice.IntN(4)]
	r.bulk = 1 + dice.IntN(4)
	if rig.PathOverNIC(t) != conn.PathNone {
		r.kind = rig.GdrpcClient // the others differ in what they do over TCP
	}
	way := dice.IntN(3)
	if way != 0 {
		r.call.Request = rig.Series(uint64(n), size(), 40_000)
	}
	if way != 1 {
		r.call.Reply = rig.Series(uint64(n)+7, size(), size()/8)
	}
	return r
}

// rounds is how many processes each test kills.
func rounds(t *testing.T) int { return rig.Number(t, "GDR_TEST_KILLS", 24) }
