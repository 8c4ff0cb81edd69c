package gdrpc

import (
	"context"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// send calls Plain with attachments of the sizes.
func (s *setup) send(t *testing.T, sizes ...int64) error {
	t.Helper()
	var slices []*gpubuf.Slice
	for i, n := range sizes {
		slices = append(slices, newSlice(t, s.clientPool, n, byte(i)))
	}
	defer freeSlices(slices)
	_, err := s.client.Plain(NewOutgoingContext(testContext(t), slices...), &testpb.PlainMessage{})
	return err
}

func TestInvalidSlices(t *testing.T) {
	s := connect(t, newForeign(t), Config{}, Config{})
	good, freed := newSlice(t, s.clientPool, 1, 0), newSlice(t, s.clientPool, 1, 0)
	defer good.Free()
	freed.Free()
	for name, tt := range map[string]struct {
		bad  *gpubuf.Slice
		text string
	}{
		"nil":   {nil, "gpubuf: ref: nil is not a slice of a pool or of Wrap; pass slices of a gpubuf.Pool"},
		"freed": {freed, "gpubuf: ref: slice already freed; pass slices that are not freed yet; the call takes references of its own"},
		"zero":  {new(gpubuf.Slice), "gpubuf: ref: not a slice of a pool or of Wrap; pass slices of a gpubuf.Pool"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := tt.bad
			_, err := s.client.Plain(NewOutgoingContext(testContext(t), good, bad), &testpb.PlainMessage{})
			requireStatus(t, err, codes.InvalidArgument, "attachment 1: "+tt.text)
			s.impl.handle = func(ctx context.Context) error { return SetReply(ctx, good, bad) }
			_, err = s.client.Plain(testContext(t), &testpb.PlainMessage{})
			requireStatus(t, err, codes.InvalidArgument, "attachment 1: "+tt.text)
			s.replying(t, 1)
			requireStatus(t, s.call(testContext(t), &Reply{Into: []*gpubuf.Slice{bad}}), codes.InvalidArgument, "Reply.Into[0]: "+tt.text)
			s.impl.handle = func(ctx context.Context) error { return FromIncomingContext(ctx)[0].LandInto(ctx, bad) }
			requireStatus(t, s.send(t, 1), codes.InvalidArgument, "LandInto: the slice for attachment 0: "+tt.text)
		})
	}
}

func TestSenderLimits(t *testing.T) {
	s := connect(t, newForeign(t), Config{InlineLimit: 100000, MaxAttachmentSize: 200000, MaxAttachments: 3}, Config{})
	requireStatus(t, s.send(t, 1, 200001), codes.ResourceExhausted, "attachment 1 has 200001 bytes; the limit is 200000 (the client's gdrpc.Config.MaxAttachmentSize: raise it there")
	requireStatus(t, s.send(t, 1, 1, 1, 1), codes.ResourceExhausted, "4 attachments in one message; the limit is 3 (the client's gdrpc.Config.MaxAttachments: raise it there")
	requireStatus(t, s.send(t, 60000, 40001), codes.ResourceExhausted,
		"number 1 make 100001 bytes", "the limit is 100000 (the client's gdrpc.Config.InlineLimit", "grpc.MaxRecvMsgSize", "not made by gdrpc's dialer")
	require.NoError(t, s.send(t, 60000, 40000))
}

func TestReceiverLimits(t *testing.T) {
	s := connect(t, newLanes(t), Config{}, Config{MaxAttachmentSize: 200000, MaxAttachments: 3})
	requireStatus(t, s.send(t, 1, 200001), codes.ResourceExhausted, "attachment 1 has 200001 bytes; the limit is 200000 (the server's gdrpc.Config.MaxAttachmentSize: raise it there")
	requireStatus(t, s.send(t, 1, 1, 1, 1), codes.ResourceExhausted, "the limit is 3 (the server's gdrpc.Config.MaxAttachments: raise it there")
	require.NoError(t, s.send(t, 1, 200000))
}

// Small attachments go by offers once the message is full.
func TestInlineOverflow(t *testing.T) {
	s := connect(t, newLanes(t), Config{InlineLimit: 1000}, Config{})
	var paths []conn.Path
	s.impl.handle = func(ctx context.Context) error {
		as := FromIncomingContext(ctx)
		_, err := as.LandAll(ctx)
		for _, a := range as {
			paths = append(paths, a.Path())
		}
		return err
	}
	require.NoError(t, s.send(t, 600, 600, 400))
	require.Equal(t, []conn.Path{conn.PathInline, conn.PathSoft, conn.PathInline}, paths)
}

func TestRequire(t *testing.T) {
	s := connect(t, newForeign(t), Config{Require: conn.PathSoft}, Config{})
	require.NoError(t, s.send(t, 16<<10))
	requireStatus(t, s.send(t, 1, 16<<10+1), codes.FailedPrecondition, "attachment 1", "the client's gdrpc.Config.Require is soft", "not made by gdrpc's dialer")

	s = connect(t, newForeign(t), Config{}, Config{Require: conn.PathSoft})
	requireStatus(t, s.send(t, 16<<10+1), codes.FailedPrecondition, "path inline is worse than the server's gdrpc.Config.Require, soft; the connection was not made by gdrpc's dialer")

	s = connect(t, newLanes(t), Config{}, Config{Require: conn.PathGDR})
	requireStatus(t, s.send(t, 16<<10+1), codes.FailedPrecondition, "path soft is worse than the server's gdrpc.Config.Require, gdr; ", "give both sides RDMA devices (conn.Config.NICs)")

	s = connect(t, newLanes(t), Config{}, Config{Require: conn.PathIPC})
	requireStatus(t, s.send(t, 16<<10+1), codes.FailedPrecondition, "path soft is worse than the server's gdrpc.Config.Require, ipc; no shared memory, as the server sees it: "+
		"the handshake has not agreed on it; send from memory that can be shared")
}

// The connection's own Require is a matter of configuration too.
func TestRequireOfConn(t *testing.T) {
	const why = ": no shared memory with the sender: the handshake has not agreed on it; send from memory that can be shared"
	const text = "attachment 0 of 16385 bytes: path soft is worse than conn.Config.Require, ipc on the "
	s := connect(t, newLanesWith(t, conn.Config{Require: conn.PathIPC}), Config{}, Config{})
	requireStatus(t, s.send(t, 16<<10+1), codes.FailedPrecondition, text+serverSide+why)
	s.replying(t, 16<<10+1)
	requireStatus(t, s.call(testContext(t), new(Reply)), codes.FailedPrecondition, text+clientSide+why)
	require.NoError(t, s.send(t, 16<<10))
}

// What no dialer of the default configuration can have is no matter of the network.
func TestRequireWithoutNICs(t *testing.T) {
	client := testpb.NewEchoClient(dial(t, newForeign(t), DialOptions(WithConfig(Config{Require: conn.PathGDR}))...))
	_, err := client.Plain(testContext(t), &testpb.PlainMessage{}, grpc.WaitForReady(true))
	requireStatus(t, err, codes.FailedPrecondition, "Config.Require is gdr and Config.Dialer is nil", "conn.Config.NICs")
}

// A pool that the program has closed is one of its mistakes.
func TestPoolClosed(t *testing.T) {
	pool, err := gpubuf.NewPool(gpubuf.Config{Device: host.New()})
	require.NoError(t, err)
	require.NoError(t, pool.Close())
	s := connect(t, newLanes(t), Config{}, Config{Pool: pool})
	requireStatus(t, s.send(t, 100), codes.FailedPrecondition, "memory for attachment 0 of 100 bytes", "pool is closed")
}

func TestPoolLimits(t *testing.T) {
	serverPool := newPool(t, gpubuf.Config{Limit: 4 << 20, RegionSize: 2 << 20, ReplyReserve: -1, MaxWait: time.Nanosecond})
	s := connect(t, newLanes(t), Config{}, Config{Pool: serverPool})
	requireStatus(t, s.send(t, 5<<20), codes.ResourceExhausted, "larger than the pool's limit", "gpubuf: alloc ")
	requireStatus(t, s.send(t, 2<<20, 2<<20, 2<<20), codes.ResourceExhausted, "larger than the pool's limit")

	full := newSlice(t, serverPool, 2<<20, 0)
	requireStatus(t, s.send(t, 2<<20, 2<<20), codes.ResourceExhausted, "memory for 2 attachments, from number 0 on: gpubuf: alloc", "pool full")
	full.Free()
	require.NoError(t, s.send(t, 2<<20, 2<<20))
}

// An RPC that holds pool memory does not wait for more.
func TestHoldNoWait(t *testing.T) {
	serverPool := tightPool(t)
	s := connect(t, newLanes(t), Config{}, Config{Pool: serverPool})
	full := newSlice(t, serverPool, 2<<20, 0)
	defer full.Free()
	s.impl.handle = func(ctx context.Context) error {
		as := FromIncomingContext(ctx)
		if _, err := as[0].Slice(ctx); err != nil {
			return err
		}
		_, err := as[1].Slice(ctx)
		return err
	}
	requireStatus(t, s.send(t, 2<<20, 2<<20), codes.ResourceExhausted, "memory for attachment 1 of 2097152 bytes: gpubuf: alloc", "pool full")
}

func TestConfigErrors(t *testing.T) {
	for name, cfg := range map[string]Config{
		"MaxAttachmentSize": {MaxAttachmentSize: -1},
		"MaxAttachments":    {MaxAttachments: -1},
		"ReplyLease":        {ReplyLease: -1},
		"Require":           {Require: 99},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, NewServer(WithConfig(cfg)).Serve(newForeign(t)), "gdrpc: Config."+name)

			l := newForeign(t)
			inner := grpc.NewServer(ServerOptions(WithConfig(cfg))...)
			testpb.RegisterEchoServer(Register(inner), &echo{})
			serve(t, l, unregistering{inner}, &echo{})
			_, err := testpb.NewEchoClient(dial(t, l)).Plain(testContext(t), &testpb.PlainMessage{})
			requireStatus(t, err, codes.FailedPrecondition, "gdrpc: Config."+name)
			_, err = testpb.NewEchoClient(dial(t, l, DialOptions(WithConfig(cfg))...)).Plain(testContext(t), &testpb.PlainMessage{})
			requireStatus(t, err, codes.FailedPrecondition, "gdrpc: Config."+name)
		})
	}
}

// unregistering is a server on which everything is registered already.
type unregistering struct{ *grpc.Server }

func (unregistering) RegisterService(*grpc.ServiceDesc, any) {}
