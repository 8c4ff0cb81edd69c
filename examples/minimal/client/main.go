// Command client sends attachments from the memory of an emulated GPU to the
// minimal server, and gets them back, in a unary call and on a stream.
//
//	client [ADDRESS]
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gdrpc/gdrpc"
	pb "github.com/gdrpc/gdrpc/examples/minimal/minimalpb"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
)

func once(ctx context.Context, client pb.EchoClient, tensor *gpubuf.Slice) error {
	var back gdrpc.Reply
	_, err := client.Once(gdrpc.NewOutgoingContext(ctx, tensor), &pb.Request{}, gdrpc.ReplyAttachments(&back))
	if err != nil {
		return err
	}
	defer back.Free()
	return show("once", back.Slices[0]) // in this side's device memory
}

func each(ctx context.Context, client pb.EchoClient, tensor *gpubuf.Slice) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream, however this returns
	defer cancel()
	stream, err := client.Each(ctx)
	if err != nil {
		return err
	}
	for range 2 {
		if err := exchange(ctx, stream, tensor); err != nil {
			return err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if _, err = stream.Recv(); err == io.EOF { // the server is done too
		return nil
	}
	return err
}

func exchange(ctx context.Context, stream pb.Echo_EachClient, tensor *gpubuf.Slice) error {
	sent, err := gdrpc.Send(stream, &pb.Request{}, tensor)
	if err != nil {
		return err
	}
	_, attachments, err := gdrpc.Recv(stream)
	if err != nil {
		return err
	}
	defer attachments.Free()
	tensors, err := attachments.LandAll(ctx)
	if err != nil {
		return err
	}
	<-sent.Done() // tensor may be written to again
	return show("each", tensors[0])
}

// show copies a slice to host memory, where the program can look at it.
func show(what string, s *gpubuf.Slice) error {
	data := make([]byte, s.Len())
	if err := s.CopyOut(data, 0); err != nil {
		return err
	}
	_, err := fmt.Printf("%s: %d bytes, %.14q..., on %s\n", what, len(data), data, s.Device().Name())
	return err
}

func run(ctx context.Context, addr string, data []byte) (err error) {
	gpu, err := emu.New(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gpu.Close()) }() // after its pool
	pool, err := gpubuf.NewPool(gpubuf.Config{Device: gpu})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }() // after slices and connection
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	opts = append(opts, gdrpc.DialOptions(gdrpc.WithConfig(gdrpc.Config{Pool: pool}))...) // last
	cc, err := grpc.NewClient(addr, opts...)
	if err != nil {
		return err
	}
	defer cc.Close()
	tensor, err := pool.Alloc(ctx, int64(len(data)))
	if err != nil {
		return err
	}
	defer tensor.Free()
	if err := tensor.CopyIn(0, data); err != nil {
		return err
	}
	client := pb.NewEchoClient(cc)
	if err := once(ctx, client, tensor); err != nil {
		return err
	}
	return each(ctx, client, tensor)
}

func main() {
	addr := "127.0.0.1:50051"
	if len(os.Args) > 1 {
		addr = os.Args[1]
	}
	if err := run(context.Background(), addr, bytes.Repeat([]byte("tensor "), 100_000)); err != nil {
		log.Fatal(err)
	}
}
