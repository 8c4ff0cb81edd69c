package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/gdrpc/gdrpc/examples/quickstart/quickstartpb"
	"github.com/gdrpc/gdrpc/gpubuf"
)

const (
	// stockMost is how much of a file goes over stock gRPC; protobuf ends at
	// 2 GiB and every side holds the message twice.
	stockMost    = 1 << 30
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

// bounceStock sends src through the stock server and back into device memory,
// and returns the time it took less the server's hashing.
func bounceStock(ctx context.Context, client pb.QuickstartClient, pool *gpubuf.Pool, src *gpubuf.Slice, sum []byte) (time.Duration, error) {
	start := time.Now()
	data := make([]byte, src.Len())
	if err := src.CopyOut(data, 0); err != nil {
		return 0, err
	}
	reply, err := client.BounceBytes(ctx, &pb.BounceBytesRequest{Data: data})
	if err != nil {
		return 0, fmt.Errorf("stock gRPC: %w", err)
	}
	back, err := pool.Alloc(ctx, int64(len(reply.GetData())))
	if err != nil {
		return 0, err
	}
	defer back.Free()
	if err := back.CopyIn(0, reply.GetData()); err != nil {
		return 0, err
	}
	took := time.Since(start) - time.Duration(reply.GetHashNanos())
	return took, verify("stock gRPC", back, reply.GetSha256(), sum)
}
