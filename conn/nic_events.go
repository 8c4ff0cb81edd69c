package conn

import (
	"errors"
	"fmt"

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
			lost := n.event(ev)
			n.events.Add(1)
			cfg.Logger.Warn("gdrpc: event of the RDMA device", "device", n.dev.Name(), "event", ev.Type.String(),
				"port", ev.Port, "qp", ev.QP, "lanes_lost", lost)
		}
	})
}

// event acts on one event and returns how many lanes it costs. A port that is
// down costs its lanes at once: their queue pairs would find out by retries, a
// second later, and only those that send.
func (n *nic) event(ev ibverbs.AsyncEvent) int {
	err := fmt.Errorf("%s: %v", n.dev.Name(), ev.Type)
	var hit func(*Lane) bool
	switch ev.Type {
	case ibverbs.EventDeviceFatal:
		n.mu.Lock()
		n.dead = err
		n.mu.Unlock()
		hit = func(*Lane) bool { return true }
	case ibverbs.EventCQErr: // which queue it was is not told
		hit = func(*Lane) bool { return true }
	case ibverbs.EventPortErr:
		hit = func(l *Lane) bool { return l.route.Port.Num == ev.Port }
	case ibverbs.EventQPFatal, ibverbs.EventQPReqErr, ibverbs.EventQPAccessErr:
		hit = func(l *Lane) bool { return l.qp.Num() == ev.QP }
	default:
		return 0 // it changes what is chosen later, or nothing
	}
	lanes := n.lanesThat(hit)
	for _, l := range lanes {
		l.abort(err)
	}
	return len(lanes)
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
