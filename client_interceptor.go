package gdrpc

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// DialOptions returns the options that let a grpc.ClientConn send and receive
// attachments: the dialer, interceptors and per-RPC credentials, which carry
// nothing secret. Pass them after your own options, so that gdrpc's interceptors
// are the innermost, and pass the result to one grpc.NewClient only.
//
// A grpc.WithContextDialer after them keeps its dialer. If that is one of package
// dialer's, attachments go by the lanes of its connections, and only Config.Dialer
// and what Config.Require says of dials have no effect. With any other they travel
// inside the messages, within the limits that the package comment states for
// connections without a gdrpc handshake. What is wrong with the configuration,
// the first call tells.
func DialOptions(opts ...Option) []grpc.DialOption {
	c := &client{endpoint: newEndpoint(opts)}
	if c.err == nil && c.cfg.Require == conn.PathGDR && c.cfg.Dialer == nil {
		c.err = errNoNICs
	}
	c.asking.Store(true)
	return c.options()
}

// errNoNICs is a requirement that the default dialer cannot meet.
var errNoNICs = errors.New("gdrpc: Config.Require is gdr and Config.Dialer is nil, whose default has no RDMA devices: " +
	"set it to a dialer.New with conn.Config.NICs, or lower Require")

func (c *client) options() []grpc.DialOption {
	c.signals = sync.OnceValues(newSignalPool)
	return []grpc.DialOption{
		grpc.WithContextDialer(c.dial),
		grpc.WithChainUnaryInterceptor(c.unary),
		grpc.WithChainStreamInterceptor(c.stream),
		grpc.WithPerRPCCredentials(attempts{c}),
	}
}

// client is what all calls of one ClientConn share.
type client struct {
	*endpoint
	shown  shown       // peers of connections that are not ours
	asking atomic.Bool // the next calls must look at the response headers

	signals func() (*gpubuf.Pool, error) // of streams' signals; made at first need
}

// unary is the innermost interceptor.
func (c *client) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if c.err != nil {
		return errorf(codes.FailedPrecondition, "%w", c.err)
	}
	choice := c.chooseCodec(opts)
	slices, wanted := outgoingSlices(ctx), wantedReply(opts)
	if choice.codec.CodecV2 == nil || choice.codec.kind == codecOther {
		if err := refuseCodec(choice, slices, wanted); err != nil {
			return err
		}
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	call := &clientCall{Context: ctx, client: c, codec: choice, wanted: wanted}
	if len(slices) > 0 {
		var err error
		if call.slices, err = c.borrow(slices); err != nil {
			return err
		}
	}
	returned := false
	defer func() {
		if !returned { // the invoker panics, or ends the goroutine
			_ = call.finish(errAborted)
		}
	}()
	all := append(opts[:len(opts):len(opts)], grpc.ForceCodecV2(clientCodec{call}))
	attempt := func(more ...grpc.CallOption) error {
		return invoker(call, method, req, reply, cc, append(all[:len(all):len(all)], more...)...)
	}
	err := call.invoke(attempt)
	for tries := 1; tries < unsentTries && call.again(err); tries++ {
		err = call.invoke(attempt)
	}
	returned = true
	return call.finish(err)
}

// errAborted is the outcome of a call whose invoker did not return.
var errAborted = errorf(codes.Internal, "the call was aborted")

// invoke makes the call. If peers are to show themselves it looks at the
// response headers.
func (call *clientCall) invoke(invoker func(...grpc.CallOption) error) error {
	if !call.client.asking.Load() {
		return invoker()
	}
	var header metadata.MD
	err := invoker(grpc.Header(&header))
	call.answered(header)
	return err
}

// refuseCodec fails a call with attachments whose codec cannot carry them.
func refuseCodec(choice codecChoice, slices []*gpubuf.Slice, wanted *Reply) error {
	if len(slices) == 0 && wanted == nil {
		return nil
	}
	switch {
	case choice.nested:
		return errorf(codes.FailedPrecondition, "gdrpc.DialOptions was given twice to one grpc.NewClient")
	case choice.codec.CodecV2 == nil && choice.subtype != "":
		return errorf(codes.FailedPrecondition, "no codec %q is registered (encoding.RegisterCodecV2)", choice.subtype)
	}
	return errorf(codes.FailedPrecondition, "codec %q carries no attachments; proto and json do", choice.subtype)
}
