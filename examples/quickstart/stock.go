package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/gdrpc/gdrpc/examples/quickstart/quickstartpb"
)

const (
	// stockMost is how much of a file goes over stock gRPC. protobuf's end is
	// at 2 GiB; memory's comes earlier, because both sides hold the message
	// several times over.
	stockMost    = 256 << 20
	stockMessage = stockMost + 1<<20 // the raised message limit
)

// BounceBytes is what a service without gdrpc does: from the message into
// device memory, and back into a message.
func (s *server) BounceBytes(ctx context.Context, req *pb.BounceBytesRequest) (*pb.BounceBytesReply, error) {
	slice, err := s.pool.Alloc(ctx, int64(len(req.GetData())))
	if err != nil {
		return nil, err
	}
	defer slice.Free()
	if err := slice.CopyIn(0, req.GetData()); err != nil {
		return nil, err
	}
	start := time.Now()
	sum, err := digest(slice)
	if err != nil {
		return nil, err
	}
	took := time.Since(start)
	data := make([]byte, slice.Len())
	if err := slice.CopyOut(data, 0); err != nil {
		return nil, err
	}
	return &pb.BounceBytesReply{Data: data, Sha256: sum, HashNanos: took.Nanoseconds()}, nil
}

func dialStock(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(stockMessage), grpc.MaxCallSendMsgSize(stockMessage)))
}

// bounceStock sends the head of the file through the stock server and back into
// device memory, and returns the time it took less the server's hashing.
func (c *client) bounceStock(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	if err := c.head.CopyOut(c.buf, 0); err != nil {
		return 0, err
	}
	reply, err := c.stock.BounceBytes(ctx, &pb.BounceBytesRequest{Data: c.buf})
	if err != nil {
		return 0, fmt.Errorf("stock gRPC: %w", err)
	}
	back, err := c.pool.Alloc(ctx, int64(len(reply.GetData())))
	if err != nil {
		return 0, err
	}
	defer back.Free()
	if err := back.CopyIn(0, reply.GetData()); err != nil {
		return 0, err
	}
	took := time.Since(start) - time.Duration(reply.GetHashNanos())
	return took, verify("stock gRPC", back, reply.GetSha256(), c.headSum)
}
