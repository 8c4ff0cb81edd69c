package rig

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// ClientKind is what calls a port.
type ClientKind int

// The kinds of clients.
const (
	GdrpcClient   ClientKind = iota // gdrpc.DialOptions, with memory of its own
	MemoryClient                    // the same, which shares memory with the server's process
	SharedClient                    // the first behind a firewall that ends joins
	PlainClient                     // the same, where lanes may not share the connection
	ForeignClient                   // gdrpc.DialOptions with a dialer that is not gdrpc's
	StockClient                     // grpc-go alone
	clientKinds   = iota
)

var clientNames = [...]string{
	"gdrpc client", "gdrpc client, shared memory", "gdrpc client, joins cut", "gdrpc client, no lanes", "gdrpc client, foreign dialer", "stock client",
}

// String names the kind.
func (k ClientKind) String() string { return clientNames[k] }

// ClientKinds are all kinds.
func ClientKinds() (all []ClientKind) {
	for k := range ClientKind(clientKinds) {
		all = append(all, k)
	}
	return all
}

// Client is one client of some kind.
type Client struct {
	Kind ClientKind
	Pool *gpubuf.Pool // nil: stock
	*grpc.ClientConn

	path conn.Path // that large attachments must take over a NIC; PathNone: any
}

// ClientConfig says how a client differs from the default.
type ClientConfig struct {
	Pool   *gpubuf.Pool  // default: an emulated GPU's
	Dialer dialer.Config // the default logger is Quiet
	GRPC   []grpc.DialOption
}

// Dial makes a client of a target, which ends with the test.
func Dial(t testing.TB, kind ClientKind, target string, cfg ClientConfig) *Client {
	t.Helper()
	c := &Client{Kind: kind, Pool: cfg.Pool}
	if c.Pool == nil && kind != StockClient {
		c.Pool = NewPool(t, gpubuf.Config{})
	}
	if kind == SharedClient || kind == PlainClient {
		target = Firewall(t, target)
	}
	cfg.Dialer.Conn.NoIPC = cfg.Dialer.Conn.NoIPC || kind != MemoryClient
	if kind == GdrpcClient || kind == MemoryClient {
		if c.path = useNIC(t, &cfg.Dialer.Conn); c.path != conn.PathNone {
			cfg.Dialer.PlainTTL = -1 // servers that are killed again and again are no reason to leave the NIC
		}
	}
	cfg.Dialer.NoShared = cfg.Dialer.NoShared || kind == PlainClient
	opts := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: 3 * Patience, // a dialer takes a third of it for a handshake
		}),
	}, cfg.GRPC...)
	if kind != StockClient {
		d := NewDialer(t, cfg.Dialer)
		opts = append(opts, gdrpc.DialOptions(gdrpc.WithConfig(gdrpc.Config{Pool: c.Pool, Dialer: d}))...)
	}
	if kind == ForeignClient {
		opts = append(opts, grpc.WithContextDialer(dialTCP))
	}
	cc, err := grpc.NewClient(target, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	c.ClientConn = cc
	return c
}

// NewDialer makes a dialer that ends with the test.
func NewDialer(t testing.TB, cfg dialer.Config) *dialer.Dialer {
	t.Helper()
	if cfg.Conn.Logger == nil && cfg.Domain == nil {
		cfg.Conn.Logger = Quiet()
	}
	setDefault(&cfg.HandshakeTimeout, Patience)
	d, err := dialer.New(&cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// dialTCP is a dialer that has nothing to do with gdrpc.
func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}
