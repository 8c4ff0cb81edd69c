package conn

import (
	"errors"
	"fmt"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// watch takes the device's events, acts on them and logs them, on a goroutine
// that ends when the device is closed.
func (n *nic) watch(cfg *Config) {
	if n.fabric == nil {
		return
	}
	n.watcher.Go(func() {
		for {
			ev, err := n.fabric.AsyncEvent()
			if err != nil {
				if !errors.Is(err, ibverbs.ErrClosed) {
					cfg.Logger.Error("gdrpc: no more events of the RDMA device", "device", n.dev.Name(), "err", err)
				}
				return
			}
			lost := n.event(ev, cfg)
			n.events.Add(1)
			cfg.Logger.Warn("gdrpc: event of the RDMA device", "device", n.dev.Name(), "event", ev.Type.String(),
				"port", ev.Port, "qp", ev.QP, "lanes_lost", lost)
		}
	})
}

// portGrace is how long a port may be down before it costs its lanes. That is
// about as long as a queue pair sends a packet again and again before it fails,
// 4.096 us * 2^ackTimeout * (ackRetries + 1) = 537 ms: a link that comes back
// earlier has lost nothing (ibv_get_async_event(3), IBV_EVENT_PORT_ERR, leaves
// queue pairs as they are), and a later one only has those fail that send.
const portGrace = 500 * time.Millisecond

// event acts on one event and returns how many lanes it costs at once.
func (n *nic) event(ev ibverbs.AsyncEvent, cfg *Config) int {
	err := fmt.Errorf("%s: %v", n.dev.Name(), ev.Type)
	var hit func(*Lane) bool
	switch ev.Type {
	case ibverbs.EventDeviceFatal:
		n.mu.Lock()
		n.dead = err
		n.mu.Unlock()
		hit = func(*Lane) bool { return true }
	case ibverbs.EventPortErr:
		back := n.portBack(ev.Port)
		n.watcher.Go(func() { n.awaitPort(ev.Port, back, err, cfg) })
		return 0
	case ibverbs.EventPortActive:
		close(n.portBack(ev.Port))
		delete(n.back, ev.Port)
		return 0
	case ibverbs.EventQPFatal, ibverbs.EventQPReqErr, ibverbs.EventQPAccessErr:
		hit = func(l *Lane) bool { return l.qp.Num() == ev.QP }
	default:
		return 0 // it changes what is chosen later, or nothing; a failed CQ tells whoever polls it
	}
	lanes := n.lanesThat(hit)
	abort(lanes, err)
	return len(lanes)
}

// portBack returns what is closed when a port is next ACTIVE.
func (n *nic) portBack(port int) chan struct{} {
	if n.back[port] == nil {
		n.back[port] = make(chan struct{})
	}
	return n.back[port]
}

// awaitPort aborts the lanes of a port that does not come back.
func (n *nic) awaitPort(port int, back <-chan struct{}, err error, cfg *Config) {
	grace := time.NewTimer(portGrace)
	defer grace.Stop()
	var lanes []*Lane
	up := false
	select {
	case <-grace.C:
		// They are listed before the port is asked: one that is made later is
		// made on a port that is up.
		lanes = n.lanesThat(func(l *Lane) bool { return l.route.Port.Num == port })
		up = n.active(port)
	case <-back: // should it be down again, that has a grace of its own
		up = true
	case <-n.closed:
		return
	}
	if up {
		cfg.Logger.Info("gdrpc: the RDMA port is back", "device", n.dev.Name(), "port", port)
		return
	}
	abort(lanes, err)
	cfg.Logger.Warn("gdrpc: the RDMA port stays down", "device", n.dev.Name(), "port", port, "for", portGrace.String(), "lanes_lost", len(lanes))
}

// active reports whether queue pairs can send through a port.
func (n *nic) active(port int) bool {
	a, err := n.fabric.QueryPort(port)
	return err == nil && (a.State == ibverbs.PortActive || a.State == ibverbs.PortActiveDefer)
}

func abort(lanes []*Lane, err error) {
	for _, l := range lanes {
		l.abort(err)
	}
}

func (n *nic) lanesThat(hit func(*Lane) bool) (lanes []*Lane) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.lanes {
		if hit(l) {
			lanes = append(lanes, l)
		}
	}
	return lanes
}
