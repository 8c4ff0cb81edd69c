package rig

import (
	"context"
	"fmt"
	"slices"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// Call is one call of the echo service.
type Call struct {
	Request []Payload
	Order
	// Undeclared calls the method whose messages have no field for
	// attachments.
	Undeclared bool
	Options    []grpc.CallOption
}

// Result is what came of a call that succeeded.
type Result struct {
	Seen  Seen
	Sums  []string    // of the reply's attachments
	Paths []string    // how each came; FieldPath at a stock client
	Stats *conn.Stats // of the client's Conn; nil if it is not ours
}

// Do makes the call. It gives back all memory before it returns.
func (c *Client) Do(ctx context.Context, call Call) (*Result, error) {
	var p peer.Peer
	call.Options = append(slices.Clip(call.Options), grpc.Peer(&p))
	var r *Result
	var err error
	if c.Kind == StockClient {
		r, err = c.stock(ctx, call)
	} else {
		r, err = c.gdrpc(ctx, call)
	}
	if err != nil {
		return nil, err
	}
	if at := ConnOf(&p); at != nil {
		st := at.Stats()
		r.Stats = &st
	}
	return r, nil
}

func (c *Client) stock(ctx context.Context, call Call) (*Result, error) {
	in := &testpb.DeclaredMessage{Text: call.Text()}
	for _, p := range call.Request {
		in.GdrpcAttachments = append(in.GdrpcAttachments, p.Bytes())
	}
	out, err := c.invoke(ctx, call, in)
	if err != nil {
		return nil, err
	}
	r := &Result{Sums: sums(out.GetGdrpcAttachments())}
	for range r.Sums {
		r.Paths = append(r.Paths, FieldPath)
	}
	return r, r.read(out.GetText())
}

func (c *Client) gdrpc(ctx context.Context, call Call) (*Result, error) {
	sources, err := Slices(ctx, c.Pool, call.Request)
	if err != nil {
		return nil, err
	}
	defer FreeAll(sources)
	if len(sources) > 0 {
		ctx = gdrpc.NewOutgoingContext(ctx, sources...)
	}
	var reply gdrpc.Reply
	call.Options = append(call.Options, gdrpc.ReplyAttachments(&reply))
	out, err := c.invoke(ctx, call, &testpb.DeclaredMessage{Text: call.Text()})
	if err != nil {
		return nil, err
	}
	defer reply.Free()
	if n := len(out.GetGdrpcAttachments()); n > 0 {
		return nil, fmt.Errorf("rig: %d attachments left in the message", n)
	}
	r := new(Result)
	for i, s := range reply.Slices {
		sum, err := SumOf(s)
		if err != nil {
			return nil, err
		}
		r.Sums, r.Paths = append(r.Sums, sum), append(r.Paths, reply.Paths[i].String())
	}
	return r, r.read(out.GetText())
}

// invoke calls the one method or the other.
func (c *Client) invoke(ctx context.Context, call Call, in *testpb.DeclaredMessage) (*testpb.DeclaredMessage, error) {
	echo := testpb.NewEchoClient(c.ClientConn)
	if !call.Undeclared {
		return echo.Declared(ctx, in, call.Options...)
	}
	out, err := echo.Plain(ctx, &testpb.PlainMessage{Text: in.GetText()}, call.Options...)
	return &testpb.DeclaredMessage{Text: out.GetText()}, err
}

func (r *Result) read(text string) (err error) {
	r.Seen, err = parse[Seen](text)
	return err
}

// Wrong says what is not as the call asked for; nil if all bytes are right.
func (r *Result) Wrong(call Call) error {
	if err := differ("the handler", r.Seen.Sums, call.Request); err != nil {
		return err
	}
	want := call.Reply
	if call.Bounce {
		want = call.Request
	}
	return differ("the client", r.Sums, want)
}

func differ(who string, got []string, want []Payload) error {
	if len(got) != len(want) {
		return fmt.Errorf("rig: %s saw %d attachments of %d", who, len(got), len(want))
	}
	for i, p := range want {
		if got[i] != p.Sum() {
			return fmt.Errorf("rig: %s saw other bytes in attachment %d of %d (%d bytes)", who, i, len(want), p.Size)
		}
	}
	return nil
}

// Right makes the call and fails unless all bytes are right, and went as they
// should.
func (c *Client) Right(ctx context.Context, call Call) error {
	r, err := c.Do(ctx, call)
	if err != nil {
		return err
	}
	if err := r.Wrong(call); err != nil || c.path == conn.PathNone {
		return err
	}
	return r.wayward(call, c.path)
}
