package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gdrpc/gdrpc"
	pb "github.com/gdrpc/gdrpc/examples/quickstart/quickstartpb"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/listener"
)

// server implements the service on both the gdrpc and the stock gRPC server.
type server struct {
	pb.UnimplementedQuickstartServer
	pool *gpubuf.Pool
}

// Bounce lands the attachment in device memory, hashes it there and returns it.
func (s *server) Bounce(ctx context.Context, req *pb.BounceRequest) (*pb.BounceReply, error) {
	in := gdrpc.FromIncomingContext(ctx)
	if len(in) != 1 {
		return nil, status.Errorf(codes.InvalidArgument, "%s: %d attachments, want 1", req.GetName(), len(in))
	}
	landed, err := in[0].Slice(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	sum, err := digest(landed)
	if err != nil {
		return nil, err
	}
	took := time.Since(start)
	if err := gdrpc.SetReply(ctx, landed); err != nil {
		return nil, err
	}
	return &pb.BounceReply{
		Sha256: sum, HashNanos: took.Nanoseconds(),
		Device: landed.Device().Name(), Path: in[0].Path().String(),
	}, nil
}

// serverMain runs the server process until its standard input ends, which it
// does when the client is gone, however it went.
func serverMain(config string) int {
	var cfg serverConfig
	err := json.Unmarshal([]byte(config), &cfg)
	if err == nil {
		setLog(cfg.Verbose)
		err = serve(cfg, os.Stdin, os.Stdout)
	}
	if err != nil {
		json.NewEncoder(os.Stdout).Encode(ready{Error: err.Error()})
		return 1
	}
	return 0
}

// serve tells its addresses on out and serves until in ends.
func serve(cfg serverConfig, in io.Reader, out io.Writer) error {
	pool, closePool, err := newPool(cfg.Device, cfg.Limit)
	if err != nil {
		return err
	}
	defer closePool()
	lanes, err := connConfig(cfg.Path)
	if err != nil {
		return err
	}
	lis, err := listener.Listen("tcp", cfg.Listen, &listener.Config{Conn: lanes, HandshakeTimeout: handshakeTimeout})
	if err != nil {
		return err
	}
	stockLis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		lis.Close()
		return err
	}
	impl := &server{pool: pool}
	srv := gdrpc.NewServer(gdrpc.WithConfig(gdrpc.Config{Pool: pool}))
	pb.RegisterQuickstartServer(srv, impl)
	stock := grpc.NewServer(grpc.MaxRecvMsgSize(stockMessage), grpc.MaxSendMsgSize(stockMessage))
	pb.RegisterQuickstartServer(stock, impl)

	errs := make(chan error, 3)
	go func() { errs <- srv.Serve(lis) }()
	go func() { errs <- stock.Serve(stockLis) }()
	go func() { io.Copy(io.Discard, in); errs <- nil }()
	if err := json.NewEncoder(out).Encode(ready{Gdrpc: lis.Addr().String(), Stock: stockLis.Addr().String()}); err != nil {
		return fmt.Errorf("tell the addresses: %w", err)
	}
	err = <-errs
	srv.Stop()
	stock.Stop()
	return err
}
