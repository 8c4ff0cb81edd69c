package dialer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake"
)

// Config configures a Dialer. The zero value of a field means its default. A
// Config is not changed after New.
type Config struct {
	// Domain is what the Conns share with those of other dialers and
	// listeners. It stays the caller's to close. Default: one of the
	// Dialer's own, made from Conn.
	Domain *conn.Domain

	// Conn configures the Dialer's own Domain. It must be zero if Domain
	// is set.
	Conn conn.Config

	// TLS, if set, has every socket of a connection run inside TLS, lanes
	// and all; then nothing is sent in clear to anyone. Its ServerName is
	// the name that the server's certificate must be for. Default: the host of
	// the address that is dialled, which with grpc's default resolver is an
	// IP address. NextProtos is the Dialer's own.
	TLS *tls.Config

	// HandshakeTimeout bounds the handshake, as does a third of the time
	// left in the dialling context. Default 3 s.
	HandshakeTimeout time.Duration

	// PlainTTL is how long dials to a server that is no gdrpc server stay
	// plain before the next one tries a handshake again, and so dials to an
	// address at which three handshakes in a row have failed; where mode verbs
	// has failed three times in a row, dials stay on TCP for as long. Default
	// 1 min, negative: each dial tries.
	PlainTTL time.Duration

	// BulkJoins is how many bulk lanes a connection asks for, each on a
	// further socket, over which large attachments are spread; it gets no
	// more than the server allows (listener.Config.MaxBulkJoins). From 1 to
	// 16. Default 1, negative: no further sockets are opened, and lanes share
	// the connection's own.
	BulkJoins int

	// NoShared rules out that lanes share the connection's own socket where
	// further sockets do not reach the server, behind a load balancer say:
	// such a connection has no lanes.
	NoShared bool
}

const (
	defaultHandshakeTimeout = 3 * time.Second
	defaultPlainTTL         = time.Minute
)

// Dialer makes connections. Its methods may be called from any goroutine.
type Dialer struct {
	cfg    Config
	domain *conn.Domain
	own    bool // domain is to be closed with the Dialer
	tcp    net.Dialer
	lookup lookup
	marks  marks

	failures failures       // of handshakes
	verbs    verbsFailures  // of mode verbs
	hook     handshake.Hook // nil outside tests

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool           // guarded by mu
	dials  sync.WaitGroup // added to under mu while not closed
}

// New makes a Dialer. A nil cfg means all defaults. Close gives back what it
// holds.
func New(cfg *Config) (*Dialer, error) {
	d := new(Dialer)
	if cfg != nil {
		d.cfg = *cfg
	}
	if err := d.cfg.complete(); err != nil {
		return nil, err
	}
	d.domain = d.cfg.Domain
	if d.domain == nil {
		var err error
		if d.domain, err = conn.NewDomain(&d.cfg.Conn); err != nil {
			return nil, fmt.Errorf("dialer: %w", err)
		}
		d.own = true
	}
	d.lookup = net.DefaultResolver.LookupNetIP
	d.marks.ttl = d.cfg.PlainTTL
	d.verbs.marks.ttl = d.cfg.PlainTTL
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d, nil
}

// complete fills in the defaults and checks the rest.
func (c *Config) complete() error {
	if c.HandshakeTimeout == 0 {
		c.HandshakeTimeout = defaultHandshakeTimeout
	}
	if c.PlainTTL == 0 {
		c.PlainTTL = defaultPlainTTL
	}
	if c.HandshakeTimeout < 0 {
		return fmt.Errorf("dialer: Config.HandshakeTimeout %v: want a positive duration; a handshake is always bounded", c.HandshakeTimeout)
	}
	if c.BulkJoins == 0 {
		c.BulkJoins = 1
	}
	if c.BulkJoins > handshake.MaxBulkJoins {
		return fmt.Errorf("dialer: Config.BulkJoins %d: want at most %d", c.BulkJoins, handshake.MaxBulkJoins)
	}
	if c.BulkJoins < 0 && c.NoShared {
		return errors.New("dialer: Config.BulkJoins is negative and Config.NoShared is set: no lanes are possible; leave one of them out")
	}
	if c.Domain != nil && !reflect.ValueOf(c.Conn).IsZero() {
		return errors.New("dialer: Config.Conn has no effect on Config.Domain: set one of them")
	}
	return nil
}

// DialContext connects to addr, which has one of the forms that grpc hands to a
// dialer: "host:port", "unix:path", "unix:///path", "unix-abstract:name". ctx
// bounds the dial and has no effect on the connection afterwards.
//
// The net.Conn is a *conn.Conn, the caller's to close. Errors are *net.OpError;
// one whose Temporary method returns true comes from a gdrpc server that is
// overloaded.
func (d *Dialer) DialContext(ctx context.Context, addr string) (net.Conn, error) {
	network, address := parse(addr)
	if err := d.begin(); err != nil {
		return nil, opError(named{network, address}, err)
	}
	defer d.dials.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(d.ctx, func() { cancel(errClosed) })
	defer stop()
	c, err := d.dial(ctx, network, address)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, opError(named{network, address}, err)
	}
	return c, nil
}

// errClosed is what dials of a closed Dialer fail with.
var errClosed = fmt.Errorf("the Dialer was closed: %w", net.ErrClosed)

// begin enters a dial, unless the Dialer is closed.
func (d *Dialer) begin() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	d.dials.Add(1)
	return nil
}

// Close ends the dials under way and waits for them. Connections that were
// dialled go on; a Domain of the Dialer's own is freed when the last of them is
// gone. It is idempotent.
func (d *Dialer) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.dials.Wait()
	if !d.own {
		return nil
	}
	return d.domain.Close()
}

// defaultDialer is DialContext's. Nothing configures it, so sharing it is
// invisible but for the plain addresses that it remembers.
var defaultDialer = sync.OnceValues(newDefault)

func newDefault() (*Dialer, error) { return New(nil) }

// DialContext dials with a Dialer that has all defaults, is made by the first
// call and lives as long as the process. It fits grpc.WithContextDialer as it
// is. See Dialer.DialContext.
func DialContext(ctx context.Context, addr string) (net.Conn, error) {
	d, err := defaultDialer()
	if err != nil {
		network, address := parse(addr)
		return nil, opError(named{network, address}, err)
	}
	return d.DialContext(ctx, addr)
}
