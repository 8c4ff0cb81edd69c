package gdrpc

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
)

// markKey is the metadata key by which gRPC peers tell each other that they
// understand offer form.
const markKey = "gdrpc"

// What a client says under markKey.
const (
	markAsk   = "1" // I am gdrpc; show me if you are
	markQuiet = "2" // I am gdrpc, and know that you are
)

// The sides, as errors name them.
const (
	clientSide = "client"
	serverSide = "server"
)

// endpoint is what all calls of one ClientConn, or of one Server, share.
type endpoint struct {
	cfg   Config
	err   error      // why cfg cannot be used; nil if it can
	proto innerCodec // what calls without a content subtype use
	side  string     // "client" or "server", for errors

	logger *slog.Logger // of tests; nil: slog's default one at the time

	unasked atomic.Uint64 // reply attachments that no caller asked for
	leases  leases        // a server's replies that are not landed yet

	mu      sync.Mutex
	pool    *gpubuf.Pool // made at first need; guarded by mu
	device  *emu.Device  // the own pool's device, nil if the user gave a pool; guarded by mu
	poolErr error        // why there is no own pool; guarded by mu
}

func newEndpoint(opts []Option) *endpoint {
	ep := &endpoint{cfg: configOf(opts), proto: codecNamed("proto"), side: clientSide}
	ep.err = ep.cfg.validate()
	ep.pool = ep.cfg.Pool
	return ep
}

func (ep *endpoint) log() *slog.Logger { return cmp.Or(ep.logger, slog.Default()) }

func (ep *endpoint) limits() limits {
	return limits{count: ep.cfg.MaxAttachments, size: ep.cfg.MaxAttachmentSize, side: ep.side}
}

// landingPool returns the pool that attachments land in.
func (ep *endpoint) landingPool() (*gpubuf.Pool, error) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.pool == nil && ep.poolErr == nil {
		ep.pool, ep.device, ep.poolErr = newEmulatedPool()
		ep.log().Info("gdrpc: there is no Config.Pool: attachments land on an emulated GPU of this side's own, which is host memory", "side", ep.side)
	}
	return ep.pool, ep.poolErr
}

func newEmulatedPool() (*gpubuf.Pool, *emu.Device, error) {
	dev, err := emu.New(nil)
	if err != nil {
		return nil, nil, err
	}
	pool, err := gpubuf.NewPool(gpubuf.Config{Device: dev})
	if err != nil {
		return nil, nil, errors.Join(err, dev.Close())
	}
	return pool, dev, nil
}

// closePool closes the pool if it is the endpoint's own. Attachments that are
// still held keep it open.
func (ep *endpoint) closePool() error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.device == nil {
		return nil
	}
	if err := ep.pool.Close(); err != nil {
		return err
	}
	err := ep.device.Close()
	ep.pool, ep.device, ep.poolErr = nil, nil, gpubuf.ErrClosed
	return err
}

// connOf finds the Conn that has the given local address; nil if the connection
// is not ours.
func connOf(local net.Addr) *conn.Conn {
	if a, ok := local.(*conn.Addr); ok {
		return a.Conn()
	}
	return nil
}
