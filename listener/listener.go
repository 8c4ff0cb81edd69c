package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake"
)

// Config configures a Listener. The zero value of a field means its default. A
// Config is not changed after New.
type Config struct {
	// Domain is what the Conns share with those of other dialers and
	// listeners. It stays the caller's to close. Default: one of the
	// Listener's own, made from Conn.
	Domain *conn.Domain

	// Conn configures the Listener's own Domain. It must be zero if Domain
	// is set.
	Conn conn.Config

	// TLS, if set, has the Listener end the TLS of connections that begin
	// with it, and requires TLS of all: a gdrpc peer's lanes run inside TLS
	// too, and a stock client's connection reaches Accept as a *tls.Conn.
	// gdrpc.TransportCredentials tells grpc of either's identity; any other
	// credentials of grpc's would end a second TLS inside, and without any
	// handlers see a connection without identity. NextProtos is the
	// Listener's own. Default: TLS is passed on as it came.
	TLS *tls.Config

	// AllowClear, with TLS, lets connections in that are in clear, on the
	// same port.
	AllowClear bool

	// PassStockTLS, with TLS, passes TLS connections whose client does not
	// offer gdrpc on as they came, for credentials of grpc's to end:
	// gdrpc.TransportCredentials(credentials.NewTLS(...)) serves both.
	PassStockTLS bool

	// HandshakeTimeout bounds a handshake, from the first bytes on, and that
	// of TLS before it. Default 3 s.
	HandshakeTimeout time.Duration

	// SniffTimeout is how long a socket may take to send the bytes that
	// tell what it is. Default 30 s, negative: for ever.
	SniffTimeout time.Duration

	// MaxSilent bounds the sockets that have not sent enough to tell what
	// they are. One more closes the oldest. Default 4096, negative: no bound.
	MaxSilent int

	// MaxHandshakes bounds the handshakes under way, not counting the
	// further sockets that join them, of which there may be 1 + MaxBulkJoins
	// times as many. Who exceeds it is told to come back. Default 256, negative: no bound.
	MaxHandshakes int

	// MaxHandshakesPerSource is the same bound for one IPv4 address or
	// IPv6 /64 prefix. Default: half of MaxHandshakes, negative: no bound.
	MaxHandshakesPerSource int

	// MaxBulkJoins bounds the bulk lanes of one connection, each on a
	// further socket; a client gets no more than it asks for
	// (dialer.Config.BulkJoins). From 1 to 16. Default 4, negative: no
	// further sockets are taken, and lanes share the connection's own.
	MaxBulkJoins int

	// NoShared keeps a client whose further sockets do not reach this
	// server from running the lanes over the connection's own socket: it
	// gets a connection without lanes.
	NoShared bool

	// Advertise has up to 4 addresses (host:port) at which clients reach
	// this very server and no other. A client whose further sockets were
	// led to another server, by a load balancer, tries them. Default: none.
	Advertise []string
}

const (
	defaultHandshakeTimeout = 3 * time.Second
	defaultSniffTimeout     = 30 * time.Second
	defaultMaxSilent        = 4096
	defaultMaxHandshakes    = 256

	defaultMaxBulkJoins = 4

	// closeTimeout bounds Close's wait for the Listener's goroutines.
	closeTimeout = 5 * time.Second
)

// Listener is a net.Listener. Its methods may be called from any goroutine.
type Listener struct {
	cfg    Config
	inner  net.Listener
	domain *conn.Domain
	own    bool // domain is to be closed with the Listener
	server handshake.Server
	hook   handshake.Hook // nil outside tests; set before start

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup // the accept loop, and one for each socket it has
	closed sync.Once

	ready   chan net.Conn // to Accept
	taken   chan struct{} // has a token when Accept took one
	waiting atomic.Int64  // sockets that wait for Accept
	failed  chan struct{} // closed when the accept loop ended, with err
	err     error         // why; guarded by failed

	silent  silent
	hellos  gate
	joins   gate
	tls     *tls.Config // nil: TLS is passed on; set before start
	tlsGate gate        // TLS handshakes
	busy    gate        // sockets that are told so
	counts  counters
}

var _ net.Listener = (*Listener)(nil)

// Listen announces on a "tcp" or "unix" network and address as net.Listen does. A
// nil cfg means all defaults.
func Listen(network, addr string, cfg *Config) (*Listener, error) {
	inner, err := net.Listen(network, addr)
	if err != nil {
		return nil, err
	}
	l, err := New(inner, cfg)
	if err != nil {
		inner.Close()
		return nil, err
	}
	return l, nil
}

// New makes a Listener that takes its connections from inner, which is the
// Listener's from then on unless New fails. A nil cfg means all defaults.
func New(inner net.Listener, cfg *Config) (*Listener, error) {
	l, err := prepare(inner, cfg)
	if err != nil {
		return nil, err
	}
	l.start()
	return l, nil
}

// prepare makes a Listener that does not accept yet.
func prepare(inner net.Listener, cfg *Config) (*Listener, error) {
	l := &Listener{
		inner:  inner,
		ready:  make(chan net.Conn),
		taken:  make(chan struct{}, 1),
		failed: make(chan struct{}),
	}
	if cfg != nil {
		l.cfg = *cfg
	}
	if err := l.cfg.complete(); err != nil {
		return nil, err
	}
	l.domain = l.cfg.Domain
	if l.domain == nil {
		var err error
		if l.domain, err = conn.NewDomain(&l.cfg.Conn); err != nil {
			return nil, fmt.Errorf("listener: %w", err)
		}
		l.own = true
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l, nil
}

// start begins to accept.
func (l *Listener) start() {
	l.server.Self = l.cfg.self(l.domain)
	l.server.NewLane = func(kind conn.LaneKind) (handshake.Lane, error) { return l.domain.NewLane(kind) }
	l.server.Invite = l.domain.Invite
	l.server.OpenVerbs = handshake.VerbsOf(l.domain)
	l.server.Hook = l.hook
	l.silent.max = l.cfg.MaxSilent
	l.hellos.max, l.hellos.perSource = l.cfg.MaxHandshakes, l.cfg.MaxHandshakesPerSource
	each := 1 + l.server.Self.BulkJoins // joins of one handshake
	l.joins.max, l.joins.perSource = each*l.hellos.max, each*l.hellos.perSource
	l.busy.max = maxBusy
	l.busy.perSource = -1
	l.startTLS()
	l.tasks.Go(l.acceptAll)
}

// complete fills in the defaults and checks the rest.
func (c *Config) complete() error {
	setDefault(&c.HandshakeTimeout, defaultHandshakeTimeout)
	setDefault(&c.SniffTimeout, defaultSniffTimeout)
	setDefault(&c.MaxSilent, defaultMaxSilent)
	setDefault(&c.MaxHandshakes, defaultMaxHandshakes)
	perSource := -1
	if c.MaxHandshakes > 0 {
		perSource = (c.MaxHandshakes + 1) / 2
	}
	setDefault(&c.MaxHandshakesPerSource, perSource)
	setDefault(&c.MaxBulkJoins, defaultMaxBulkJoins)
	if c.HandshakeTimeout < 0 {
		return fmt.Errorf("listener: Config.HandshakeTimeout %v: want a positive duration; a handshake is always bounded", c.HandshakeTimeout)
	}
	if err := c.completeTLS(); err != nil {
		return err
	}
	if c.Domain != nil && !reflect.ValueOf(c.Conn).IsZero() {
		return errors.New("listener: Config.Conn has no effect on Config.Domain: set one of them")
	}
	return c.checkLanes()
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Addr returns the inner listener's address.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Close frees the port at once, closes the sockets that Accept has not
// returned, and waits, for a bounded time, until nothing of the Listener runs any
// more. Connections that Accept has returned go on; a Domain of the Listener's
// own is freed when the last of them is gone. It is idempotent.
func (l *Listener) Close() (err error) {
	l.closed.Do(func() {
		l.cancel()
		err = l.inner.Close()
		l.silent.close()
		l.wait()
		if l.own {
			err = errors.Join(err, l.domain.Close())
		}
	})
	return err
}

// wait waits for the Listener's goroutines.
func (l *Listener) wait() {
	done := make(chan struct{})
	go func() {
		l.tasks.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closeTimeout):
		l.domain.Config().Logger.Warn("gdrpc: listener closes while a socket of it does not", "addr", l.Addr().String())
	}
}
