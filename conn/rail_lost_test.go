package conn

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/faultverbs"
	"github.com/stretchr/testify/require"
)

// holding has the second NIC of both sides keep the completions of receives back,
// after a queue pair's first: nothing that comes by it is known to have come.
func holding(_ int, c *Config) {
	c.NICs[1] = faultverbs.Wrap(c.NICs[1], &faultverbs.Script{Hold: func(done faultverbs.Completion) time.Duration {
		if done.Recv && done.N > 1 {
			return faultverbs.Never
		}
		return 0
	}})
}

// pairWithRail makes a pair with a lane on the second NICs, each of which is near the
// memory of one pool.
func pairWithRail(t *testing.T, n *railNetwork) (client, server *Conn, far *gpubuf.Pool) {
	client, server = n.pair(t)
	greet(t, client, server)
	server.more.want(server.d.nics[1], Token{})
	awaitRails(t, client, 2)
	awaitRails(t, server, 2)
	return client, server, newPoolAt(t, 1)
}

// moving is an attachment on its way.
type moving struct {
	o    *Offer
	l    *Landing
	dst  *gpubuf.Slice
	want []byte
}

func begin(t *testing.T, from, to *Conn, pool *gpubuf.Pool, size int, seed byte) moving {
	s, want := filled(t, pool, size, seed)
	dst := alloc(t, pool, size)
	o := offer(t, from, s)
	return moving{o, to.Land(o.Token(), from.Flags(o), dst), dst, want}
}

// end has the move come to a good end.
func (m moving) end(t *testing.T) {
	t.Helper()
	require.NoError(t, m.l.Wait(soon(t)))
	<-m.l.Consumed()
	requireBytes(t, m.want, m.dst)
	m.o.Withdraw()
	<-m.o.Drained()
}

// awaitAsked waits until something is asked for on the second lane of c.
func awaitAsked(t *testing.T, c *Conn) {
	t.Helper()
	asked := func() bool {
		c.recv.mu.Lock()
		defer c.recv.mu.Unlock()
		return len(c.recv.rails) > 1 && c.recv.rails[1].outstanding() > 0
	}
	require.Eventually(t, asked, patience, tick)
}

// furtherLane returns the lane of c on its second NIC.
func furtherLane(c *Conn) *Lane {
	c.more.mu.Lock()
	defer c.more.mu.Unlock()
	return c.more.lanes[0]
}

// awaitLost waits until c has moved what a lost lane had not brought.
func awaitLost(t *testing.T, c *Conn, lanes uint64) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Stats().LanesLost >= lanes || c.ending.failed.get() != nil }, patience, tick)
	require.NoError(t, c.ending.failed.get())
	c.more.tasks.Wait()
}

// TestRailLost: a further lane that is lost, whichever end notices, costs no
// landing and no connection: what it had not brought comes by the first one.
func TestRailLost(t *testing.T) {
	fatal := func(n *railNetwork, side int, c *Conn) {
		n.second[side].Raise(ibverbs.AsyncEvent{Type: ibverbs.EventQPFatal, QP: furtherLane(c).qp.Num()})
	}
	for _, tt := range []struct {
		name   string
		lose   func(n *railNetwork, client, server *Conn)
		reason [2]string
	}{
		{"queue pair of one", func(n *railNetwork, client, _ *Conn) { fatal(n, 0, client) }, [2]string{"rail1: IBV_EVENT_QP_FATAL", "rail1, lane 2"}},
		{"queue pair of the other", func(n *railNetwork, _, server *Conn) { fatal(n, 1, server) }, [2]string{"rail1, lane 2", "rail1: IBV_EVENT_QP_FATAL"}},
		{"queue pairs of both", func(n *railNetwork, client, server *Conn) { fatal(n, 0, client); fatal(n, 1, server) }, [2]string{}},
		// Its queue pairs may tell before its event does.
		{"device", func(n *railNetwork, _, _ *Conn) { n.second[1].Kill() }, [2]string{"rail1, lane 2", "rail1"}},
		{"port", func(n *railNetwork, _, _ *Conn) { n.second[0].MarkPort(1, downPort()) }, [2]string{"rail1: IBV_EVENT_PORT_ERR", "rail1, lane 2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newRailNetworkOf(t, func(side int, c *Config) { holding(side, c); c.Checksums = true })
			client, server, far := pairWithRail(t, n)
			moves := []moving{
				begin(t, client, server, far, 30<<20+123, 1), begin(t, client, server, far, 300000, 2),
				begin(t, server, client, far, 20<<20+1, 3), begin(t, server, client, far, 1<<20, 4),
			}
			awaitAsked(t, client)
			awaitAsked(t, server)
			tt.lose(n, client, server)
			for _, m := range moves {
				m.end(t)
				require.Equal(t, PathGDR, m.l.Path())
			}
			for i, c := range []*Conn{client, server} {
				awaitLost(t, c, 1)
				st := c.Stats()
				require.EqualValues(t, 1, st.LanesLost)
				require.NotZero(t, st.LandingsMoved)
				require.Contains(t, st.LaneLost, tt.reason[i])
				require.EqualValues(t, 2, st.Landings)
				require.Equal(t, []string{"rail0"}, railsOf(c))
				require.NoError(t, c.ending.failed.get())
				require.NoError(t, c.Offload())
				require.Empty(t, c.more.taken, "the lane's number is free")
				require.Empty(t, c.more.lanes)
			}
			begin(t, client, server, far, 3<<20, 5).end(t)
			begin(t, server, client, far, 3<<20, 6).end(t)
		})
	}
}

// TestRailLostAtRandom loses the lane after each of the first messages.
func TestRailLostAtRandom(t *testing.T) {
	for after := range uint64(12) {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			n := newRailNetworkOf(t, func(_ int, c *Config) { c.Checksums = true })
			client, server, far := pairWithRail(t, n)
			lane := furtherLane([]*Conn{client, server}[after%2])
			lost := make(chan struct{})
			go func() {
				defer close(lost)
				for progress := uint64(0); progress < after; {
					server.recv.mu.Lock()
					progress = server.recv.progress
					server.recv.mu.Unlock()
				}
				if after%3 == 0 {
					lane.qp.Modify(errState, ibverbs.QPAttrState)
				} else {
					lane.abort(fmt.Errorf("after %d messages", after))
				}
			}()
			moves := []moving{begin(t, client, server, far, 24<<20, 1), begin(t, server, client, far, 5<<20, 2), begin(t, client, server, far, 5000, 3)}
			for _, m := range moves {
				m.end(t)
			}
			<-lost
			require.NoError(t, client.ending.failed.get())
			require.NoError(t, server.ending.failed.get())
		})
	}
}

// TestRailLostStaged: what the other NIC does not reach goes on through staging
// blocks, unless that is ruled out.
func TestRailLostStaged(t *testing.T) {
	for _, require2 := range []Path{PathNone, PathGDR} {
		t.Run(require2.String(), func(t *testing.T) {
			n := newRailNetworkOf(t, func(side int, c *Config) {
				holding(side, c)
				if side == 1 {
					c.Require = require2
				}
			})
			client, server, far := pairWithRail(t, n)
			server.d.nics[0].regions.device = nil // as if it reached host memory alone
			m := begin(t, client, server, far, 9<<20, 1)
			awaitAsked(t, server)
			furtherLane(client).abort(errNoNIC)
			if require2 == PathGDR {
				require.ErrorContains(t, m.l.Wait(soon(t)), "would go on by path rdma-staged, since a lane was lost, and Config.Require is gdr")
				<-m.l.Consumed()
				m.o.Withdraw()
				<-m.o.Drained()
			} else {
				m.end(t)
				require.Equal(t, PathRDMAStaged, m.l.Path())
			}
			awaitLost(t, server, 1)
			require.NoError(t, server.ending.failed.get())
		})
	}
}

// TestRailLostCancelled: a landing that is cancelled while its lane is lost gives
// its memory back, and an offer that is withdrawn its own.
func TestRailLostCancelled(t *testing.T) {
	n := newRailNetworkOf(t, holding)
	client, server, far := pairWithRail(t, n)
	cancelled, withdrawn := begin(t, client, server, far, 9<<20, 1), begin(t, client, server, far, 9<<20, 2)
	awaitAsked(t, server)
	server.recv.cancel(cancelled.l, errPeerEnded)
	furtherLane(server).abort(errNoNIC)
	withdrawn.o.Withdraw()
	require.ErrorIs(t, cancelled.l.Wait(soon(t)), errPeerEnded)
	require.Error(t, withdrawn.l.Wait(soon(t)))
	<-cancelled.l.Consumed()
	<-withdrawn.l.Consumed()
	cancelled.o.Withdraw()
	<-cancelled.o.Drained()
	<-withdrawn.o.Drained()
	awaitLost(t, server, 1)
	require.NoError(t, server.ending.failed.get())
}

// TestRailLostClosing: the connection may end in the middle of it.
func TestRailLostClosing(t *testing.T) {
	n := newRailNetworkOf(t, holding)
	client, server, far := pairWithRail(t, n)
	m := begin(t, client, server, far, 9<<20, 1)
	awaitAsked(t, server)
	furtherLane(server).abort(errNoNIC)
	server.fail(errNoNIC)
	require.Error(t, m.l.Wait(soon(t)))
	<-m.l.Consumed()
	client.Close()
	<-client.ending.done
	m.o.Withdraw()
	<-m.o.Drained()
}

// TestRailAgain: a lane that was lost is opened again, under its old number, once
// the pair's back-off is over, and not before.
func TestRailAgain(t *testing.T) {
	log := make(logLines, 100)
	n := newRailNetworkOf(t, func(side int, c *Config) {
		if side == 1 {
			c.Logger = slog.New(slog.NewTextHandler(log, nil))
		}
	})
	client, server, far := pairWithRail(t, n)
	for round := range uint64(3) {
		furtherLane(client).abort(errNoNIC)
		awaitLost(t, server, round+1)
		awaitLost(t, client, round+1)
		require.Contains(t, log.await(t, "bulk lane on a further NIC lost"), "tried_again_after=10s")
		begin(t, client, server, far, 1<<20, 1).end(t)
		server.more.tasks.Wait()
		require.Equal(t, []string{"rail0"}, railsOf(server))

		server.d.rails.stands(server.more.pair(server.d.nics[1])) // as if the time were over
		begin(t, client, server, far, 1<<20, 1).end(t)
		awaitRails(t, server, 2)
		awaitRails(t, client, 2)
		require.EqualValues(t, 2, server.recv.rails[1].index)
		before := server.Stats().ByNIC["rail1"]
		begin(t, client, server, far, 1<<20, 1).end(t)
		require.Equal(t, before+1<<20, server.Stats().ByNIC["rail1"], "what lost lanes brought counts on")
	}
}

// heldNIC is a NIC whose queue pairs cannot be destroyed once armed is set: they are,
// but it says that they are not.
type heldNIC struct {
	ibverbs.Device
	armed *atomic.Bool
}

type heldContext struct {
	ibverbs.FabricContext
	armed *atomic.Bool
}

type heldPD struct {
	ibverbs.DevicePD
	armed *atomic.Bool
}

type heldQP struct {
	ibverbs.QP
	armed *atomic.Bool
}

func (d heldNIC) Open() (ibverbs.Context, error) {
	ctx, err := d.Device.Open()
	if err != nil {
		return nil, err
	}
	return heldContext{ctx.(ibverbs.FabricContext), d.armed}, nil
}

func (c heldContext) AllocPD() (ibverbs.PD, error) {
	pd, err := c.FabricContext.AllocPD()
	if err != nil {
		return nil, err
	}
	return heldPD{pd.(ibverbs.DevicePD), c.armed}, nil
}

func (p heldPD) CreateQP(init ibverbs.QPInitAttr) (ibverbs.QP, error) {
	qp, err := p.DevicePD.CreateQP(init)
	if err != nil {
		return nil, err
	}
	return heldQP{qp, p.armed}, nil
}

func (q heldQP) Destroy() error {
	if err := q.QP.Destroy(); err != nil || !q.armed.Load() {
		return err
	}
	return errors.New("the device does not answer")
}

// TestRailLostHeld: where the lost queue pair may still write to a destination,
// nothing is asked for again, and the connection is reset.
func TestRailLostHeld(t *testing.T) {
	var armed atomic.Bool
	n := newRailNetworkOf(t, func(side int, c *Config) {
		if side == 1 {
			c.NICs[1] = heldNIC{c.NICs[1], &armed}
		}
		holding(side, c)
	})
	client, server, far := pairWithRail(t, n)
	m := begin(t, client, server, far, 9<<20, 1)
	awaitAsked(t, server)
	armed.Store(true)
	furtherLane(server).abort(errNoNIC)
	require.ErrorContains(t, m.l.Wait(soon(t)), "the device does not answer")
	<-m.l.Consumed()
	requireReset(t, server, "the device does not answer")
	require.Zero(t, server.Stats().LandingsMoved)
	client.Close()
	<-client.ending.done
	m.o.Withdraw()
	<-m.o.Drained()
}

// TestRailLostUnflushed: a lane whose queue pair can be destroyed is lost like any
// other, although it cannot be told to flush: the device was removed.
func TestRailLostUnflushed(t *testing.T) {
	var gone atomic.Bool
	n := newRailNetworkOf(t, func(side int, c *Config) {
		holding(side, c)
		if side == 1 {
			c.NICs[1] = faultverbs.Wrap(c.NICs[1], &faultverbs.Script{Refuse: func(call faultverbs.Call) error {
				if call.Op == faultverbs.OpModifyErr && gone.Load() {
					return errNoNIC
				}
				return nil
			}})
		}
	})
	client, server, far := pairWithRail(t, n)
	m := begin(t, client, server, far, 9<<20, 1)
	awaitAsked(t, server)
	gone.Store(true)
	furtherLane(server).abort(errNoNIC)
	m.end(t)
	awaitLost(t, server, 1)
	awaitLost(t, client, 1)
	require.NotZero(t, server.Stats().LandingsMoved)
}

// entering makes a lane on c's second NIC, as if c opened it, of which the peer
// knows nothing.
func entering(t *testing.T, c *Conn) (*further, *VerbsLanes) {
	c.control.stop()
	m, second := &c.more, c.d.nics[1]
	v, err := m.make([]*nic{second}, nil)
	require.NoError(t, err)
	f := &further{index: 2, nic: second}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken[2], m.asked[second] = f, 1
	return f, v
}

// TestRailLostAtOnce: a lane that is lost while it is being opened, when nothing is
// left that could fail, has failed once.
func TestRailLostAtOnce(t *testing.T) {
	n := newRailNetwork(t)
	_, server := n.pair(t)
	m, second := &server.more, server.d.nics[1]
	f, v := entering(t, server)
	m.enter(f, v.lanes[0])
	require.NoError(t, m.told(2))
	m.report(f, second, m.settle(f, nil))
	m.tasks.Wait()
	require.Zero(t, m.asked[second])
	require.Empty(t, m.taken)
	require.Equal(t, railWait, server.d.rails.failed[m.pair(second)].wait)
}

// TestRailLostBefore: who opens a lane does not wait for a peer that has called it
// lost already.
func TestRailLostBefore(t *testing.T) {
	n := newRailNetwork(t)
	_, server := n.pair(t)
	f, v := entering(t, server)
	require.NoError(t, server.more.told(2))
	server.more.enter(f, v.lanes[0])
	err := v.AwaitReady(soon(t))
	require.ErrorIs(t, err, errPeerLost)
	require.ErrorIs(t, server.more.settle(f, err), errPeerLost)
	require.Empty(t, server.more.taken)
}

// TestRailLostAsItStands: a lane that fails when both sides have called it ready, and
// before its completions are handed on, is lost, although nothing is posted on it
// that would tell.
func TestRailLostAsItStands(t *testing.T) {
	n := newRailNetwork(t)
	_, server := n.pair(t)
	f, v := entering(t, server)
	server.more.enter(f, v.lanes[0])
	v.lanes[0].abort(errNoNIC)
	require.ErrorIs(t, server.more.settle(f, nil), errNoNIC)
	server.more.tasks.Wait()
	require.EqualValues(t, 1, server.Stats().LanesLost)
	require.Contains(t, server.Stats().LaneLost, errNoNIC.Error())
}

// TestRailLostWhileClosing: the peer's BulkLost may come while the further lanes
// are closed. The race detector tells.
func TestRailLostWhileClosing(t *testing.T) {
	n := newRailNetwork(t)
	_, server := n.pair(t)
	m := &server.more
	m.mu.Lock()
	for index := uint8(1); index < maxRails; index += 2 {
		m.taken[index] = &further{index: index, said: true}
	}
	m.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		m.close()
		close(closed)
	}()
	for index := uint8(1); index < maxRails; index += 2 {
		require.NoError(t, m.told(index))
	}
	<-closed
	require.Empty(t, m.taken)
}

// TestRailLostRefused: a lane that is lost since its queue pair takes a request no
// more, which works on meanwhile, brings nothing into the wrong place.
func TestRailLostRefused(t *testing.T) {
	for _, op := range []faultverbs.Op{faultverbs.OpPostSend, faultverbs.OpPostRecv} {
		for side := range 2 {
			for nth := range int64(10) {
				t.Run(fmt.Sprintf("%s/side %d/%d", op, side, nth), func(t *testing.T) {
					var left atomic.Int64
					n := newRailNetworkOf(t, func(i int, c *Config) {
						if i != side {
							return
						}
						c.NICs[1] = faultverbs.Wrap(c.NICs[1], &faultverbs.Script{Refuse: func(call faultverbs.Call) error {
							if call.Op == op && left.Add(-1) == 0 {
								return errNoNIC
							}
							return nil
						}})
					})
					client, server, far := pairWithRail(t, n)
					first := begin(t, client, server, far, 1<<20, 1) // has the memory proved
					first.end(t)
					left.Store(1 + nth)
					moves := []moving{
						begin(t, client, server, far, 10<<20, 1), begin(t, client, server, far, 300000, 2),
						begin(t, server, client, far, 10<<20, 3), begin(t, server, client, far, 5000, 4),
					}
					for _, m := range moves {
						m.end(t)
					}
					if left.Load() <= 0 {
						awaitLost(t, client, 1)
						awaitLost(t, server, 1)
					}
					require.NoError(t, client.ending.failed.get())
					require.NoError(t, server.ending.failed.get())
				})
			}
		}
	}
}

// TestRailUnfit: a lane on a NIC that does not register a source, of which the peer was
// told before there was the lane that it comes straight, is lost, and the landing comes
// by another, whatever its size, with the path that it says.
func TestRailUnfit(t *testing.T) {
	for _, size := range []int{300_000, 9 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			var refused atomic.Int32
			n := newRailNetworkOf(t, func(side int, c *Config) {
				if side == 0 {
					c.NICs = []ibverbs.Device{c.NICs[0], lockedNIC(c.NICs[1], 2, &refused)}
				} else {
					c.Require = PathGDR
				}
			})
			client, server := n.pair(t)
			greet(t, client, server)
			far, host := newPoolAt(t, 1), newPool(t, "host")
			s, want := filled(t, host, size, 1)
			o := offer(t, client, s)
			flags := client.Flags(o)
			server.more.want(server.d.nics[1], Token{})
			awaitRails(t, client, 2)
			awaitRails(t, server, 2)
			require.False(t, client.d.nics[1].reaches(o.where))
			dst := alloc(t, far, size)
			m := moving{o, server.Land(o.Token(), flags, dst), dst, want}
			m.end(t)
			require.Equal(t, PathGDR, m.l.Path())
			require.NotZero(t, refused.Load())
			awaitLost(t, client, 1)
			require.Contains(t, client.Stats().LaneLost, "registering the source of an attachment")
			require.Equal(t, []string{"rail0"}, railsOf(client))
		})
	}
}
