package gdrpc

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/gdrpc/gdrpc/conn"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// clientStream is a client's stream and its attachments. Its codec works in the
// goroutines of SendMsg and RecvMsg.
type clientStream struct {
	grpc.ClientStream // grpc's; not in use before the interceptor returns
	client            *client
	parent            context.Context // the caller's
	desc              *grpc.StreamDesc
	method            string
	codec             codecChoice
	wanted            *Reply // of a stream's only reply; nil: nobody asked
	in                inbox
	out               outbox

	// The receiver's own.
	arrived *incoming // with the message that is being received
	recvErr error     // of the codec
	learned bool      // the peer's headers have been looked at

	mu      sync.Mutex   // no Conn is waited for under it
	last    attempt      // guarded by mu
	held    []*conn.Conn // Conns to Unhold at the end; guarded by mu
	bound   bool         // attachments were sent: there is no other attempt; guarded by mu
	formed  bool         // a message in offer form was made; guarded by mu
	ended   bool         // guarded by mu
	sendErr error        // of the codec, as the caller must see it; guarded by mu
}

var _ grpc.ClientStream = (*clientStream)(nil)

// stream is the innermost stream interceptor.
func (c *client) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if c.err != nil {
		return nil, errorf(codes.FailedPrecondition, "%w", c.err)
	}
	choice := c.chooseCodec(opts)
	slices, wanted := outgoingSlices(ctx), wantedReply(opts)
	if err := checkStream(desc, method, slices, wanted); err != nil {
		return nil, err
	}
	if choice.codec.CodecV2 == nil || choice.codec.kind == codecOther {
		if err := refuseCodec(choice, slices, wanted); err != nil {
			return nil, err
		}
		return streamer(ctx, desc, cc, method, opts...)
	}
	s := &clientStream{
		client: c, parent: ctx, desc: desc, method: method, codec: choice, wanted: wanted,
		in: newInbox(false), out: newOutbox(c.endpoint, true),
	}
	if len(slices) > 0 {
		refs, err := c.borrow(slices)
		if err != nil {
			return nil, err
		}
		s.out.put(&parcel{slices: refs})
	}
	opts = append(opts[:len(opts):len(opts)], grpc.ForceCodecV2(streamCodec{s}), grpc.OnFinish(func(error) { s.end() }))
	inner, err := streamer(attemptContext{ctx, s}, desc, cc, method, opts...)
	if err != nil {
		s.end()
		return nil, err
	}
	s.ClientStream = inner
	return s, nil
}

// attemptContext is what the attempts of a stream run under.
type attemptContext struct {
	context.Context // the caller's
	stream          *clientStream
}

// Value implements context.Context.
func (c attemptContext) Value(key any) any {
	if key == (attemptKey{}) {
		return c.stream
	}
	return c.Context.Value(key)
}

// begin implements attempted. Retries call it in the receiving goroutine, under
// a lock of grpc's.
func (s *clientStream) begin(local net.Addr, says says) map[string]string {
	a := attempt{conn: connOf(local), local: local, says: says}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bound {
		a.broken = errors.New("a stream with attachments cannot be started again")
	}
	s.last = a
	if a.conn == nil || s.ended || s.bound {
		return metadataOf[says]
	}
	a.conn.Hold() // grpc may close it before what came has landed
	s.held = append(s.held, a.conn)
	if !s.desc.ClientStreams {
		return metadataOf[says]
	}
	signal := s.client.newSignal(a.conn)
	s.out.await(signal)
	return withSignal(says, signal)
}

// attempt returns the latest one.
func (s *clientStream) attempt() attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Context implements grpc.ClientStream. Unlike grpc's it commits the stream only
// when something of grpc's is asked for, so that Send and Recv find the stream
// and leave it as it is.
func (s *clientStream) Context() context.Context { return clientStreamContext{s} }

// SendMsg implements grpc.ClientStream.
func (s *clientStream) SendMsg(msg any) error {
	if p := s.out.claim(); p != nil {
		e := s.encode(p, msg)
		if e.err == errOver {
			return io.EOF // as grpc's, which has not noticed yet; Recv tells how it ended
		}
		defer func() { e.data.Free() }()
		msg = e
	}
	err := s.ClientStream.SendMsg(msg)
	if err == nil || err == io.EOF {
		return err
	}
	s.end()
	s.out.drain()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sendErr != nil && status.Code(err) == codes.Internal {
		return s.sendErr // grpc makes every error of a codec Internal
	}
	return err
}

// encode makes a message with p attached. That commits the stream: there is one
// attempt from then on.
func (s *clientStream) encode(p *parcel, msg any) *encoded {
	ctx := s.ClientStream.Context()
	s.mu.Lock()
	r := s.client.routeOf(s.last)
	s.bound = true
	s.formed = s.formed || r.gdrpc
	s.mu.Unlock()
	data, err := s.out.encode(ctx, p, msg, s.codec.codec, r)
	return &encoded{msg, data, err}
}

// RecvMsg implements grpc.ClientStream.
func (s *clientStream) RecvMsg(msg any) error {
	s.in.next()
	err := s.ClientStream.RecvMsg(msg)
	in := s.arrived
	s.arrived = nil
	s.learn(err)
	switch {
	case err != nil:
		in.discard(nil)
		in.end()
		return s.failed(err)
	case s.desc.ServerStreams:
		s.in.put(in)
		return nil
	}
	err = s.onlyReply(in)
	s.end()
	s.out.drain()
	return err
}

// onlyReply takes what came with the reply of a method that streams none.
func (s *clientStream) onlyReply(in *incoming) error {
	defer in.end()
	if s.wanted == nil {
		in.discard(&s.client.unasked)
		return nil
	}
	return s.wanted.receive(s.parent, in)
}

// failed ends the stream and returns the error that the caller must see for err,
// which grpc returned. The sources are the user's again when it returns.
func (s *clientStream) failed(err error) error {
	source := s.out.failedSource()
	s.end()
	s.out.drain()
	if err == io.EOF {
		return err
	}
	s.mu.Lock()
	last, formed, recorded := s.last, s.formed, s.recvErr
	if recorded == nil {
		recorded = s.sendErr
	}
	s.mu.Unlock()
	return s.client.explain(err, recorded, source, last, formed)
}

// learn looks at the response headers once they are there, if the peer was asked
// to show itself.
func (s *clientStream) learn(err error) {
	if s.learned || err != nil && err != io.EOF {
		return
	}
	s.learned = true
	last := s.attempt()
	if last.says != saysAsk {
		return
	}
	if header, err := s.ClientStream.Header(); err == nil {
		s.client.answered(last, header)
	}
}

// end is told, once or more often and from any goroutine, that the RPC has
// ended. It does not wait.
func (s *clientStream) end() {
	s.mu.Lock()
	held := s.held
	s.held, s.ended = nil, true
	s.mu.Unlock()
	s.out.end()
	s.out.withdraw()
	s.in.end()
	unhold(held)
}
