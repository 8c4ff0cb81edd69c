// Command server returns the attachments that it is sent, from the memory of an
// emulated GPU.
//
//	server [ADDRESS]
package main

import (
	"context"
	"errors"
	"io"
	"log"
	"os"
	"os/signal"

	"github.com/gdrpc/gdrpc"
	pb "github.com/gdrpc/gdrpc/examples/minimal/minimalpb"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/listener"
)

type echo struct{ pb.UnimplementedEchoServer }

// Once lands the request's attachments in device memory and replies with them.
// What it lands is freed when the call is over.
func (echo) Once(ctx context.Context, _ *pb.Request) (*pb.Reply, error) {
	tensors, err := gdrpc.FromIncomingContext(ctx).LandAll(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.Reply{}, gdrpc.SetReply(ctx, tensors...)
}

// Each does so with every message of a stream.
func (echo) Each(stream pb.Echo_EachServer) error {
	for {
		_, attachments, err := gdrpc.Recv(stream)
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		tensors, err := attachments.LandAll(stream.Context())
		if err == nil {
			_, err = gdrpc.Send(stream, &pb.Reply{}, tensors...)
		}
		attachments.Free() // before the next message's are landed; Send has references of its own
		if err != nil {
			return err
		}
	}
}

func run(ctx context.Context, addr string) (err error) {
	gpu, err := emu.New(nil) // cuda.New(nil) of gpubuf/cuda: an NVIDIA GPU
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gpu.Close()) }() // after its pool
	pool, err := gpubuf.NewPool(gpubuf.Config{Device: gpu})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }() // after the server
	lis, err := listener.Listen("tcp", addr, nil)
	if err != nil {
		return err
	}
	srv := gdrpc.NewServer(gdrpc.WithConfig(gdrpc.Config{Pool: pool}))
	pb.RegisterEchoServer(srv, echo{}) // generated code, as it is
	stopped := make(chan struct{})
	context.AfterFunc(ctx, func() { srv.GracefulStop(); close(stopped) })
	log.Print("listening on ", lis.Addr())
	if err := srv.Serve(lis); err != nil {
		return err
	}
	<-stopped
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	addr := "127.0.0.1:50051"
	if len(os.Args) > 1 {
		addr = os.Args[1]
	}
	if err := run(ctx, addr); err != nil {
		log.Fatal(err)
	}
}
