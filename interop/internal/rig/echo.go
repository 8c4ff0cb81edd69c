package rig

import (
	"context"
	"sync/atomic"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"google.golang.org/grpc/peer"
)

// Echo is the service of a gdrpc server: it lands what comes in its pool and
// carries out the order. Served by a stock server it sees no attachments.
type Echo struct {
	chat
	Name  string
	Pool  *gpubuf.Pool // of the reply's attachments
	Gates Gates
	// Entered, if set, is called when a handler starts. Set it before Serve.
	Entered func()

	Started atomic.Int64 // handlers
	Calls   atomic.Int64 // that were carried out
}

var _ testpb.EchoServer = (*Echo)(nil)

// Declared implements testpb.EchoServer.
func (e *Echo) Declared(ctx context.Context, in *testpb.DeclaredMessage) (*testpb.DeclaredMessage, error) {
	seen, err := e.serve(ctx, in.GetText())
	if err != nil {
		return nil, err
	}
	seen.Sums = append(seen.Sums, sums(in.GetGdrpcAttachments())...) // none, unless gdrpc left them
	return &testpb.DeclaredMessage{Text: text(seen)}, nil
}

// Plain implements testpb.EchoServer.
func (e *Echo) Plain(ctx context.Context, in *testpb.PlainMessage) (*testpb.PlainMessage, error) {
	seen, err := e.serve(ctx, in.GetText())
	if err != nil {
		return nil, err
	}
	return &testpb.PlainMessage{Text: text(seen)}, nil
}

func (e *Echo) serve(ctx context.Context, order string) (*Seen, error) {
	e.Started.Add(1)
	if e.Entered != nil {
		e.Entered()
	}
	o, err := parse[Order](order)
	if err != nil {
		return nil, err
	}
	if err := e.Gates.pass(ctx, o.Hold); err != nil {
		return nil, err
	}
	in := gdrpc.FromIncomingContext(ctx)
	landed, err := in.LandAll(ctx)
	if err != nil {
		return nil, err
	}
	seen := e.look(ctx)
	for i, s := range landed {
		sum, err := SumOf(s)
		if err != nil {
			return nil, err
		}
		seen.Sums = append(seen.Sums, sum)
		seen.Paths = append(seen.Paths, in[i].Path().String())
	}
	if err := e.reply(ctx, o, landed); err != nil {
		return nil, err
	}
	e.Calls.Add(1)
	return seen, nil
}

// look notes what the server knows of the connection.
func (e *Echo) look(ctx context.Context) *Seen {
	seen := &Seen{Server: e.Name, Sums: []string{}}
	p, _ := peer.FromContext(ctx)
	if c := ConnOf(p); c != nil {
		st := c.Stats()
		seen.Mode, seen.Reason = st.Mode.String(), st.Reason
	}
	return seen
}

func (e *Echo) reply(ctx context.Context, o Order, landed []*gpubuf.Slice) error {
	if o.Bounce {
		return gdrpc.SetReply(ctx, landed...)
	}
	if len(o.Reply) == 0 {
		return nil
	}
	slices, err := Slices(ctx, e.Pool, o.Reply)
	if err != nil {
		return err
	}
	defer FreeAll(slices)
	return gdrpc.SetReply(ctx, slices...)
}

// ConnOf is the Conn of a peer; nil if its connection is not ours.
func ConnOf(p *peer.Peer) *conn.Conn {
	if p == nil {
		return nil
	}
	if a, ok := p.LocalAddr.(*conn.Addr); ok {
		return a.Conn()
	}
	return nil
}
