package conn

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/faultverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft/fabric"
	"github.com/stretchr/testify/require"
)

// kill has a side vanish as a killed process does: its queue pairs are silent,
// its TCP connection ends.
func (n *network) kill(side int, c *Conn) {
	n.nics[side].Kill()
	c.bootstrap.sock.Close()
}

// busy has attachments on their way in both directions, which never end well.
// The function that it returns waits for their end.
func busy(t *testing.T, client, server *Conn) (wait func()) {
	pool := newPool(t, "emu")
	var landings []*Landing
	var offers []*Offer
	for i, ends := range [][2]*Conn{{client, server}, {server, client}} {
		s, _ := filled(t, pool, 30<<20, byte(i))
		o := offer(t, ends[0], s)
		offers = append(offers, o)
		landings = append(landings, ends[1].Land(o.Token(), ends[0].Flags(o), alloc(t, pool, 30<<20)))
	}
	return func() {
		for _, l := range landings {
			l.Wait(soon(t)) // it may have been in time
			select {
			case <-l.Consumed():
			case <-soon(t).Done():
				t.Error("the destination is not given back")
			}
		}
		for _, o := range offers {
			o.Withdraw()
			select {
			case <-o.Drained():
			case <-soon(t).Done():
				t.Error("the source is not given back")
			}
		}
	}
}

// TestVerbsLost: whatever a connection is lost by, in the middle of transfers or
// idle, Read and Write fail with the reason, attachments have failed in a way
// that a new connection heals, and everything is given back.
func TestVerbsLost(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lose   func(n *network, client, server *Conn)
		reason string // of the client
	}{
		{"peer killed", func(n *network, _, server *Conn) { n.kill(1, server) }, ""},
		{"device fatal", func(n *network, _, _ *Conn) { n.nics[0].Kill() }, ""},
		{"port error", func(n *network, _, _ *Conn) {
			p := fabric.RoCE("10.0.0.1", "eth0")
			p.Attr.State = ibverbs.PortDown
			n.nics[0].SetPort(1, p)
		}, ""},
		{"port stays down", func(n *network, _, _ *Conn) { n.nics[0].MarkPort(1, downPort()) }, "nic1: IBV_EVENT_PORT_ERR"},
		{"stream queue pair", func(n *network, client, _ *Conn) { n.fatal(client.stream.(*qpStream).l) }, "nic1: IBV_EVENT_QP_FATAL"},
		{"control queue pair", func(n *network, client, _ *Conn) { n.fatal(client.lanes[0]) }, "nic1: IBV_EVENT_QP_FATAL"},
		{"bulk queue pair", func(n *network, client, _ *Conn) { n.fatal(client.lanes[1]) }, "nic1: IBV_EVENT_QP_FATAL"},
		{"eager queue pair", func(n *network, client, _ *Conn) { n.fatal(client.eager.l) }, "nic1: IBV_EVENT_QP_FATAL"},
		{"queue pair in error", func(_ *network, client, _ *Conn) { client.lanes[1].qp.Modify(errState, ibverbs.QPAttrState) }, ""},
		{"noise on TCP", func(_ *network, _, server *Conn) { server.bootstrap.sock.Write([]byte{1}) }, "broke the silence of the TCP connection"},
		{"TCP reset", func(_ *network, _, server *Conn) {
			server.bootstrap.sock.(*net.TCPConn).SetLinger(0)
			server.bootstrap.sock.Close()
		}, "the peer's TCP connection has ended"},
	} {
		for _, traffic := range []bool{false, true} {
			name := tt.name + ", idle"
			if traffic {
				name = tt.name + ", busy"
			}
			t.Run(name, func(t *testing.T) {
				n := newNetwork(t, quiet())
				client, server := n.pair(t)
				greet(t, client, server)
				wait := func() {}
				if traffic {
					wait = busy(t, client, server)
				} else if tt.name == "queue pair in error" {
					return // nothing is posted there that would tell, and nothing is needed
				}
				tt.lose(n, client, server)
				requireLost(t, client, tt.reason)
				client.Close()
				server.Close()
				wait()
				<-client.ending.done
				<-server.ending.done
			})
		}
	}
}

// TestVerbsLostBefore: a lane that fails before there is a Conn ends the Conn, even
// one on which nothing is posted that would tell.
func TestVerbsLostBefore(t *testing.T) {
	for kind, lane := range map[LaneKind]func(*Setup) *Lane{
		LaneStream:  func(s *Setup) *Lane { return s.StreamLane },
		LaneControl: func(s *Setup) *Lane { return s.Control },
		LaneBulk:    func(s *Setup) *Lane { return s.Bulk[0] },
		laneEager:   func(s *Setup) *Lane { return s.Control.eager },
	} {
		t.Run(kind.String(), func(t *testing.T) {
			n := newNetwork(t, quiet())
			n.filled = func(s *Setup) { lane(s).abort(errNoNIC) }
			client, server := n.pair(t)
			requireLost(t, client, errNoNIC.Error())
			client.Close()
			server.Close()
			<-client.ending.done
			<-server.ending.done
		})
	}
}

// fatal raises the event that the queue pair of a lane has failed.
func (n *network) fatal(l *Lane) {
	n.nics[0].Raise(ibverbs.AsyncEvent{Type: ibverbs.EventQPFatal, QP: l.qp.Num()})
}

func requireLost(t *testing.T, c *Conn, reason string) {
	t.Helper()
	stop := context.AfterFunc(soon(t), func() { c.Close() })
	defer stop()
	_, err := c.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF)
	for _, ended := range []*cause{c.ending.failed, c.ending.lanes} { // the stream may tell before the Conn does
		select {
		case <-ended.ch:
		case <-soon(t).Done():
			t.Fatal("the Conn goes on")
		}
	}
	require.ErrorContains(t, c.ending.failed.get(), reason)
	require.ErrorContains(t, err, reason)
	_, err = c.Write([]byte{1})
	require.Error(t, err)
	require.ErrorIs(t, c.Offload(), ErrLanesLost)
}

// TestVerbsKilledIdle: a peer that is killed is noticed by its TCP connection
// alone, and that is a reset.
func TestVerbsKilledIdle(t *testing.T) {
	n := newNetwork(t, quiet())
	lost := make(chan error, 1)
	n.lost[0] = func(err error) { lost <- err }
	client, server := n.pair(t)
	n.kill(1, server)
	_, err := client.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Empty(t, lost, "that is no failure of mode verbs")
}

// TestVerbsEndBeforeKilled: what was sent before the peer's Close is read to the
// end, though the peer was gone before it could end the rest in order.
func TestVerbsEndBeforeKilled(t *testing.T) {
	n := newNetwork(t, quiet())
	client, server := n.pair(t)
	greet(t, client, server)
	server.Hold() // so that it lingers
	_, err := server.Write([]byte("the last words"))
	require.NoError(t, err)
	require.NoError(t, server.Close())
	<-server.stream.(*qpStream).finished
	n.kill(1, server)
	got, err := io.ReadAll(client)
	require.NoError(t, err)
	require.Equal(t, "the last words", string(got))
	<-client.ending.lanes.ch
	require.ErrorIs(t, client.Offload(), ErrLanesLost)
	require.NoError(t, client.ending.failed.get())
	server.Unhold()
}

// TestVerbsSilentTCP: the bootstrap connection carries not one byte, and ends
// last.
func TestVerbsSilentTCP(t *testing.T) {
	n := newNetwork(t, quiet())
	v, socks := n.lanes(t), socketPair(t)
	var ends [2]*Conn
	counted := [2]*countedSocket{{Conn: socks[0]}, {Conn: socks[1]}}
	for i := range ends {
		s := Setup{Client: i == 0, Gdrpc: true, Peer: n.domains[1-i].Limits()}
		v[i].Fill(&s, counted[i])
		var err error
		ends[i], err = New(n.domains[i], s)
		require.NoError(t, err)
	}
	greet(t, ends[0], ends[1])
	pool := newPool(t, "emu")
	s, want := filled(t, pool, 1<<20, 1)
	landBy(t, ends[0], ends[1], s, alloc(t, pool, 1<<20), want)
	require.NoError(t, ends[0].Close())
	_, err := ends[1].Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	closeBoth(ends[0], ends[1])
	for i, c := range counted {
		require.Zero(t, c.written, "side %d", i)
		require.NoError(t, ends[i].ending.failed.get())
	}
}

// countedSocket counts what is written.
type countedSocket struct {
	net.Conn
	written int
}

func (c *countedSocket) Write(b []byte) (int, error) {
	c.written += len(b)
	return c.Conn.Write(b)
}

// logLines is what a Domain logs, line by line.
type logLines chan string

func (l logLines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// await returns the line that has text.
func (l logLines) await(t *testing.T, text string) string {
	t.Helper()
	for {
		select {
		case line := <-l:
			if strings.Contains(line, text) {
				return line
			}
		case <-soon(t).Done():
			t.Fatalf("nobody logs %q", text)
		}
	}
}

// TestVerbsLives: what costs no lane: a port that is down for a moment, and the
// event of a CQ, which tells whoever polls it by itself.
func TestVerbsLives(t *testing.T) {
	for _, tt := range []struct {
		name   string
		happen func(d *fabric.Device)
		logged string
	}{
		{"port flaps", func(d *fabric.Device) {
			d.MarkPort(1, downPort())
			d.MarkPort(1, fabric.RoCE("10.0.0.1", "eth0"))
		}, "the RDMA port is back"},
		{"CQ event", func(d *fabric.Device) { d.Raise(ibverbs.AsyncEvent{Type: ibverbs.EventCQErr}) }, "IBV_EVENT_CQ_ERR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := make(logLines, 100)
			n := newNetworkOf(t, func(side int, c *Config) {
				if side == 0 {
					c.Logger = slog.New(slog.NewTextHandler(log, nil))
				}
			})
			client, server := n.pair(t)
			greet(t, client, server)
			tt.happen(n.nics[0])
			log.await(t, tt.logged)
			pool := newPool(t, "emu")
			s, want := filled(t, pool, 1<<20, 1)
			require.Equal(t, PathGDR, landBy(t, client, server, s, alloc(t, pool, 1<<20), want))
			require.Equal(t, PathGDR, landBy(t, server, client, s, alloc(t, pool, 1<<20), want))
		})
	}
}

// TestVerbsCQFails: a CQ that fails costs the connection whose it is, and no
// other of the NIC.
func TestVerbsCQFails(t *testing.T) {
	var armed atomic.Bool
	n := newNetworkOf(t, func(side int, c *Config) {
		if side == 0 {
			c.NICs = []ibverbs.Device{faultverbs.Wrap(c.NICs[0], &faultverbs.Script{Refuse: func(call faultverbs.Call) error {
				if call.Op == faultverbs.OpPoll && armed.CompareAndSwap(true, false) {
					return errors.New("the queue has overrun")
				}
				return nil
			}})}
		}
	})
	var pairs [2][2]*Conn
	for i := range pairs {
		pairs[i][0], pairs[i][1] = n.pair(t)
		greet(t, pairs[i][0], pairs[i][1])
		go func() { _, _ = io.Copy(io.Discard, pairs[i][0]) }() // a stream is polled by who waits for it
	}
	armed.Store(true)
	_, err := pairs[0][1].Write([]byte{1}) // has a queue polled, unless one still was
	require.NoError(t, err)
	lost, lives := pairs[0], pairs[1]
	select {
	case <-lost[0].ending.failed.ch:
	case <-lives[0].ending.failed.ch:
		lost, lives = lives, lost
	case <-soon(t).Done():
		t.Fatal("nobody is told")
	}
	require.ErrorContains(t, lost[0].ending.failed.get(), "the queue has overrun")
	pool := newPool(t, "emu")
	s, want := filled(t, pool, 1<<20, 1)
	require.Equal(t, PathGDR, landBy(t, lives[0], lives[1], s, alloc(t, pool, 1<<20), want))
}

// TestVerbsDeviceDead: a NIC that has failed is not used again, with that reason.
func TestVerbsDeviceDead(t *testing.T) {
	n := newNetwork(t, quiet())
	n.nics[0].Kill()
	require.Eventually(t, func() bool { return n.domains[0].nics[0].usable() != nil }, patience, tick)
	_, err := n.domains[0].OpenVerbs(nil, nil)
	require.ErrorContains(t, err, "nic1: IBV_EVENT_DEVICE_FATAL")
}
