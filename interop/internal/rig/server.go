package rig

import (
	"net"
	"testing"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	streampb "google.golang.org/grpc/interop/grpc_testing"
)

// ServerKind is what answers on a port.
type ServerKind int

// The kinds of servers.
const (
	GdrpcServer      ServerKind = iota // gdrpc.Server on gdrpc's listener
	GdrpcServerOnNet                   // gdrpc.Server on a net.Listener
	StockOnListener                    // grpc.Server on gdrpc's listener
	StockServer                        // grpc.Server on a net.Listener
	serverKinds      = iota
)

var serverNames = [...]string{"gdrpc server", "gdrpc server on net.Listener", "stock server on gdrpc listener", "stock server"}

// String names the kind.
func (k ServerKind) String() string { return serverNames[k] }

// ServerKinds are all kinds.
func ServerKinds() (all []ServerKind) {
	for k := range ServerKind(serverKinds) {
		all = append(all, k)
	}
	return all
}

// Server is one server of some kind.
type Server struct {
	Kind     ServerKind
	Addr     string
	Pool     *gpubuf.Pool       // nil: stock
	Echo     *Echo              // nil: stock
	Listener *listener.Listener // nil: a net.Listener
	grpc     interface {
		grpc.ServiceRegistrar
		Serve(net.Listener) error
		Stop()
		GracefulStop()
	}
	served chan error
}

// ServerConfig says how a server differs from the default.
type ServerConfig struct {
	Name     string          // in its answers; default: the kind's
	Network  string          // default "tcp"
	Address  string          // default: Local of a GdrpcServer, else "127.0.0.1:0"
	Pool     *gpubuf.Pool    // default: an emulated GPU's
	Listener listener.Config // of gdrpc's listeners; the default logger is Quiet
	GRPC     []grpc.ServerOption
	Inner    net.Listener // in place of Network and Address
	Entered  func()       // Echo.Entered
	Gdrpc    gdrpc.Config // of a gdrpc.Server; its Pool is the one above
}

// Serve runs a server until the test ends.
func Serve(t testing.TB, kind ServerKind, cfg ServerConfig) *Server {
	t.Helper()
	setDefault(&cfg.Name, kind.String())
	setDefault(&cfg.Network, "tcp")
	if cfg.Address == "" && kind == GdrpcServer {
		cfg.Address = Local(t)
	}
	setDefault(&cfg.Address, "127.0.0.1:0")
	inner := cfg.Inner
	var err error
	if inner == nil {
		inner, err = net.Listen(cfg.Network, cfg.Address)
		require.NoError(t, err)
	}
	s := &Server{Kind: kind, Addr: inner.Addr().String(), served: make(chan error, 1)}
	lis := inner
	if kind == GdrpcServer && cfg.Listener.Domain == nil {
		useNIC(t, &cfg.Listener.Conn)
	}
	setDefault(&cfg.Listener.HandshakeTimeout, Patience)
	if kind == GdrpcServer || kind == StockOnListener {
		if cfg.Listener.Conn.Logger == nil && cfg.Listener.Domain == nil {
			cfg.Listener.Conn.Logger = Quiet()
		}
		s.Listener, err = listener.New(inner, &cfg.Listener)
		require.NoError(t, err)
		lis = s.Listener
	}
	s.make(t, cfg)
	go func() { s.served <- s.grpc.Serve(lis) }()
	t.Cleanup(func() {
		s.grpc.Stop()
		require.NoError(t, <-s.served)
	})
	return s
}

// make makes the server and its services.
func (s *Server) make(t testing.TB, cfg ServerConfig) {
	if s.Kind == StockServer || s.Kind == StockOnListener {
		s.grpc = grpc.NewServer(cfg.GRPC...)
		testpb.RegisterEchoServer(s.grpc, &StockEcho{Name: cfg.Name})
	} else {
		s.Pool = cfg.Pool
		if s.Pool == nil {
			s.Pool = NewPool(t, gpubuf.Config{})
		}
		s.Echo = &Echo{Name: cfg.Name, Pool: s.Pool, Entered: cfg.Entered}
		cfg.Gdrpc.Pool = s.Pool
		s.grpc = gdrpc.NewServer(append(cfg.GRPC, gdrpc.WithConfig(cfg.Gdrpc))...)
		testpb.RegisterEchoServer(s.grpc, s.Echo)
	}
	streampb.RegisterTestServiceServer(s.grpc, streams{})
}

// Stop ends the server at once.
func (s *Server) Stop() { s.grpc.Stop() }

// GracefulStop ends the server once its calls have ended.
func (s *Server) GracefulStop() { s.grpc.GracefulStop() }

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
