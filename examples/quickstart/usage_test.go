package main_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gdrpc/gdrpc"
	pb "github.com/gdrpc/gdrpc/examples/quickstart/quickstartpb"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/listener"
)

// README.md shows what stands between the two marks.

// usage: begin

// The handler lands what came, in device memory, and returns it.
func (echo) Bounce(ctx context.Context, _ *pb.BounceRequest) (*pb.BounceReply, error) {
	tensors, err := gdrpc.FromIncomingContext(ctx).LandAll(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.BounceReply{}, gdrpc.SetReply(ctx, tensors...)
}

// lis is what listener.Listen("tcp", addr, nil) returned.
func serve(lis net.Listener, pool *gpubuf.Pool) error {
	srv := gdrpc.NewServer(gdrpc.WithConfig(gdrpc.Config{Pool: pool}))
	pb.RegisterQuickstartServer(srv, echo{}) // generated code, as it is
	return srv.Serve(lis)
}

func call(ctx context.Context, addr string, pool *gpubuf.Pool, tensor *gpubuf.Slice) error {
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	opts = append(opts, gdrpc.DialOptions(gdrpc.WithConfig(gdrpc.Config{Pool: pool}))...)
	cc, err := grpc.NewClient(addr, opts...)
	if err != nil {
		return err
	}
	defer cc.Close()
	var back gdrpc.Reply
	_, err = pb.NewQuickstartClient(cc).Bounce(gdrpc.NewOutgoingContext(ctx, tensor),
		&pb.BounceRequest{}, gdrpc.ReplyAttachments(&back))
	if err != nil {
		return err
	}
	defer back.Free()
	return use(back.Slices) // in the client's device memory
}

// usage: end

type echo struct {
	pb.UnimplementedQuickstartServer
}

var payload = bytes.Repeat([]byte("tensor "), 100_000)

// use checks what came back.
func use(slices []*gpubuf.Slice) error {
	if len(slices) != 1 || slices[0].Len() != int64(len(payload)) {
		return errors.New("not one slice of the length that was sent")
	}
	got := make([]byte, len(payload))
	if err := slices[0].CopyOut(got, 0); err != nil {
		return err
	}
	if !bytes.Equal(got, payload) {
		return errors.New("not the bytes that were sent")
	}
	return nil
}

func TestUsage(t *testing.T) {
	if os.Getenv("GDRPC_QUICKSTART_USAGE") == "" { // in a process of its own: see TestMain
		exe, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), exe, "-test.run", "^TestUsage$")
		cmd.Env = append(os.Environ(), "GDRPC_QUICKSTART_USAGE=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	gpu, err := emu.New(nil)
	require.NoError(t, err)
	pool, err := gpubuf.NewPool(gpubuf.Config{Device: gpu})
	require.NoError(t, err)
	tensor, err := pool.Alloc(t.Context(), int64(len(payload)))
	require.NoError(t, err)
	require.NoError(t, tensor.CopyIn(0, payload))

	lis, err := listener.Listen("tcp", "127.0.0.1:0", nil)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- serve(lis, pool) }()
	require.NoError(t, call(t.Context(), lis.Addr().String(), pool, tensor))
	require.NoError(t, lis.Close())
	<-served // the listener was closed below the server
	tensor.Free()
	require.Eventually(t, func() bool { return pool.Close() == nil }, 10*time.Second, time.Millisecond)
	require.NoError(t, gpu.Close())
}

// The README shows this file's code.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	source, err := os.ReadFile("usage_test.go")
	require.NoError(t, err)
	_, code, _ := strings.Cut(string(source), "// usage: begin\n")
	code, _, ok := strings.Cut(code, "// usage: end\n")
	require.True(t, ok)
	require.Contains(t, string(readme), "```go\n"+strings.TrimSpace(code)+"\n```\n")
}
