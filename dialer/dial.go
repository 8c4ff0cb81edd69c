package dialer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake"
	"github.com/gdrpc/gdrpc/internal/hangup"
)

// stepConn is the last step of a dial, after the handshake's.
const stepConn = handshake.Step("making the Conn")

// Why a Conn is plain although no handshake failed.
const (
	reasonUnix   = "a Unix socket has no lanes"
	reasonMarked = "the server at this address was found to be no gdrpc server"
)

// marked is the reason of the dials to an address after the one that found what
// the server is.
func (m *marks) marked(first string) string {
	return fmt.Sprintf("%s, which is remembered for %v (dialer.Config.PlainTTL): %s", reasonMarked, m.ttl, first)
}

// dial connects and settles the mode.
func (d *Dialer) dial(ctx context.Context, network, address string) (*conn.Conn, error) {
	if d.cfg.TLS != nil {
		return d.dialTLS(ctx, network, address)
	}
	sock, err := d.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if network == "unix" {
		return d.plain(sock, reasonUnix, nil)
	}
	remote := sock.RemoteAddr().String()
	if reason := d.marks.find(remote); reason != "" {
		return d.plain(sock, reason, nil)
	}
	return d.settle(ctx, sock, way{remote: remote})
}

// settle runs the handshake on sock, and dials again in plain if it fails. A
// server that refuses by a TLS alert would refuse once more.
func (d *Dialer) settle(ctx context.Context, sock net.Conn, w way) (*conn.Conn, error) {
	res, err := d.shake(ctx, sock, w)
	if err == nil {
		return d.agreed(ctx, sock, w, res)
	}
	sock.Close()
	var busy *handshake.BusyError
	if errors.As(err, &busy) || handshake.IsAlert(err) || ctx.Err() != nil {
		return nil, err
	}
	d.failed(w.remote, err)
	return d.redial(ctx, w, err)
}

// connect opens one socket.
func (d *Dialer) connect(ctx context.Context, network, address string) (net.Conn, error) {
	sock, err := d.tcp.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	handshake.Tune(sock)
	return sock, nil
}

// shake runs the handshake on sock. Joins go to the address that sock is
// connected to.
func (d *Dialer) shake(ctx context.Context, sock net.Conn, w way) (*handshake.Result, error) {
	timeout := d.cfg.HandshakeTimeout
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(end)/3)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c := handshake.Client{
		Self: d.self(ctx),
		NewLane: func(kind conn.LaneKind) (handshake.Lane, error) {
			return d.domain.NewLane(kind)
		},
		OpenVerbs: d.openVerbs(w.remote),
		DialJoin: func(ctx context.Context, direct string) (net.Conn, error) {
			return d.dialJoin(ctx, sock, w, direct)
		},
		Hook: d.hook,
	}
	return c.Do(ctx, sock)
}

// redial connects once more to where the handshake failed, in plain. The server
// is marked once it has answered as a plain one does, unless it had shown itself
// to be gdrpc, or has only hung up on the handshake: gdrpc servers do so too when
// they end or have no descriptors left, and speak HTTP/2 to plain dials.
func (d *Dialer) redial(ctx context.Context, w way, failure error) (*conn.Conn, error) {
	if err := d.reachable(conn.PathInline, failure.Error()); err != nil {
		return nil, err
	}
	sock, err := d.open(ctx, w, handshake.ProtoHTTP2)
	if err != nil {
		return nil, fmt.Errorf("%w; dialled again after: %v", bare(err), failure)
	}
	firstRead := func(b []byte) {
		if handshake.IsPlain(b) {
			d.marks.set(w.remote, d.marks.marked(failure.Error()))
		}
	}
	var e *handshake.Error
	if errors.As(failure, &e) && e.Gdrpc || hangup.Is(failure) {
		firstRead = nil
	}
	return d.plain(sock, failure.Error(), firstRead)
}

// plain makes the Conn of a server that is not known to be gdrpc.
func (d *Dialer) plain(sock net.Conn, reason string, firstRead func([]byte)) (*conn.Conn, error) {
	if err := d.reachable(conn.PathInline, reason); err != nil {
		sock.Close()
		return nil, err
	}
	return d.newConn(conn.Setup{
		Stream:    sock,
		Mode:      conn.ModePlain,
		Reason:    reason,
		Client:    true,
		FirstRead: firstRead,
	})
}

// bestOf returns the best path of what the handshake agreed on, and why there is
// no better one.
func bestOf(res *handshake.Result) (conn.Path, string) {
	switch {
	case res.Mode == conn.ModePlain:
		return conn.PathInline, res.Reason
	case res.Mode == conn.ModeVerbs: // each attachment tells whether the NICs reach its memory
		return conn.PathGDR, ""
	case res.IPC != nil:
		return conn.PathIPC, cmp.Or(res.Reason, "the lanes run over TCP") + ", the memory is shared"
	}
	return conn.PathSoft, cmp.Or(res.Reason, "the lanes run over TCP") + "; no shared memory: " + res.NoIPC
}

// agreed makes the Conn that the handshake agreed on.
func (d *Dialer) agreed(ctx context.Context, sock net.Conn, w way, res *handshake.Result) (*conn.Conn, error) {
	if res.VerbsFailed != "" {
		d.verbs.failed(w.remote, res.VerbsFailed)
	}
	best, reason := bestOf(res)
	if err := d.reachable(best, reason); err != nil {
		sock.Close()
		res.Close()
		return nil, err
	}
	var c *conn.Conn
	s, err := res.Setup(sock, true)
	s.Lost = func(err error) { d.verbs.failed(w.remote, err.Error()) }
	if err == nil {
		c, err = d.newConn(s)
	}
	if err != nil {
		d.failed(w.remote, err)
		return nil, err
	}
	d.failures.clear(w.remote)
	if d.domain.Config().Require != conn.PathIPC || res.Mode == conn.ModeVerbs {
		return c, nil
	}
	if err := c.AwaitIPC(ctx); err != nil {
		c.Close()
		return nil, &requireError{want: conn.PathIPC, best: conn.PathSoft, reason: err.Error()}
	}
	return c, nil
}

// newConn hands everything in s over to a Conn, which logs its line.
func (d *Dialer) newConn(s conn.Setup) (*conn.Conn, error) {
	if d.hook != nil {
		if err := d.hook(stepConn); err != nil {
			return nil, errors.Join(err, handshake.CloseSetup(s))
		}
	}
	return conn.New(d.domain, s)
}
