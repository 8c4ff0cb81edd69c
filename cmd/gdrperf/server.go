package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/cmd/gdrperf/perfpb"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/listener"
)

// maxMessage is the raised message limit of stock gRPC.
const maxMessage = 128 << 20

// server implements the service, whatever it is reached by.
type server struct {
	perfpb.UnimplementedPerfServer
	mem *memory
}

// Land lands the attachment and forgets it.
func (s *server) Land(ctx context.Context, _ *perfpb.Empty) (*perfpb.LandReply, error) {
	in := gdrpc.FromIncomingContext(ctx)
	if len(in) != 1 {
		return nil, status.Errorf(codes.InvalidArgument, "%d attachments, want 1", len(in))
	}
	landed, err := in[0].Slice(ctx)
	if err != nil {
		return nil, err
	}
	return &perfpb.LandReply{Path: in[0].Path().String(), Device: landed.Device().Name()}, nil
}

// Take implements perfpb.PerfServer.
func (s *server) Take(ctx context.Context, m *perfpb.Empty) (*perfpb.Empty, error) {
	_, err := s.Land(ctx, m)
	return &perfpb.Empty{}, err
}

// Put takes the bytes out of the message, where a service without gdrpc has
// them.
func (s *server) Put(ctx context.Context, req *perfpb.PutRequest) (*perfpb.Empty, error) {
	if !req.GetToDevice() {
		return &perfpb.Empty{}, nil
	}
	pool := s.mem.device
	if pool == nil {
		pool = s.mem.emu
	}
	dst, err := pool.Alloc(ctx, int64(len(req.GetData())))
	if err != nil {
		return nil, err
	}
	defer dst.Free()
	return &perfpb.Empty{}, dst.CopyIn(0, req.GetData())
}

func (s *server) Ping(context.Context, *perfpb.Empty) (*perfpb.Empty, error) {
	return &perfpb.Empty{}, nil
}

func (s *server) GetUsage(_ context.Context, req *perfpb.UsageRequest) (*perfpb.Usage, error) {
	return usage(req, s.mem)
}

// serverMain runs the server process until its standard input ends, which it
// does when the client is gone, however it went.
func serverMain() int {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		json.NewEncoder(os.Stdout).Encode(addresses{Error: err.Error()})
		return 1
	}
	return 0
}

func serve(in io.Reader, out io.Writer) error {
	var setup staging
	if err := json.Unmarshal([]byte(os.Getenv(serverEnv)), &setup); err != nil {
		return fmt.Errorf("%s: %w", serverEnv, err)
	}
	mem, err := newMemory(cmp.Or(setup.To, setup.Device))
	if err != nil {
		return err
	}
	var s servers
	to, err := s.start(&server{mem: mem})
	defer s.stop()
	if err == nil && setup.Device != "" {
		err = s.startStaged(&server{mem: mem}, setup, &to)
	}
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(to); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// servers is everything that listens.
type servers struct{ stops []func() }

func (s *servers) stop() {
	for _, stop := range s.stops {
		stop()
	}
}

// start starts all servers and says where they listen.
func (s *servers) start(impl *server) (to addresses, err error) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return to, err
	}
	s.stops = append(s.stops, func() { tcp.Close() })
	go serveTCP(tcp, impl.mem.host)
	to.TCP = tcp.Addr().String()

	stock := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage))
	perfpb.RegisterPerfServer(stock, impl)
	if to.Stock, err = s.serve(stock, net.Listen); err != nil {
		return to, err
	}
	if to.Plain, err = s.serve(newServer(impl, impl.mem.host), net.Listen); err != nil {
		return to, err
	}
	if to.Host, err = s.serve(newServer(impl, impl.mem.host), listen); err != nil {
		return to, err
	}
	to.Emu, err = s.serve(newServer(impl, impl.mem.emu), listen)
	return to, err
}

// startStaged starts what the staged contests reach.
func (s *servers) startStaged(impl *server, setup staging, to *addresses) error {
	pipes, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.stops = append(s.stops, func() { pipes.Close() })
	go servePipes(pipes, impl.mem.device)
	to.Pipe = pipes.Addr().String()
	to.Device, err = s.serve(newServer(impl, impl.mem.device), func(network, addr string) (net.Listener, error) {
		return listener.Listen(network, addr, setup.listenerConfig())
	})
	if err == nil {
		to.Shared, err = s.serve(newServer(impl, impl.mem.device), listen)
	}
	return err
}

func newServer(impl *server, pool *gpubuf.Pool) *gdrpc.Server {
	srv := gdrpc.NewServer(gdrpc.WithConfig(gdrpc.Config{Pool: pool}))
	perfpb.RegisterPerfServer(srv, impl)
	return srv
}

func listen(network, addr string) (net.Listener, error) {
	return listener.Listen(network, addr, &listener.Config{HandshakeTimeout: handshakeTimeout})
}

// serve starts one server on a free port.
func (s *servers) serve(srv interface {
	Serve(net.Listener) error
	Stop()
}, listen func(network, addr string) (net.Listener, error)) (string, error) {
	lis, err := listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s.stops = append(s.stops, srv.Stop)
	go srv.Serve(lis)
	return lis.Addr().String(), nil
}
