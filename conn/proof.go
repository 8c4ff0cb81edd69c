package conn

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/route"
)

// That memory was registered proves nothing: bridges, IOMMUs and drivers may
// still stand between a NIC and a device. So each pair is proved, once, by a
// transfer from device memory to device memory through the NIC's own loop-back,
// and a comparison of the bytes.

//
// A transfer that fails may take its time to do so. It runs on a goroutine of its
// own, and calls wait for it until proofPatience after its start, with no lock
// held: whoever comes later, or has waited, goes through staging blocks until it is
// known that nobody must.

const (
	proofBytes    = 192<<10 + 64
	proofBound    = 5 * time.Second
	proofPatience = 2 * time.Second
)

// proofs holds what is known of one NIC and each device of memory.
type proofs struct {
	tasks sync.WaitGroup // added to under mu while not closed

	mu     sync.Mutex
	closed bool                     // guarded by mu
	byDev  map[gpubuf.Device]*proof // guarded by mu
}

// proof is the state of one pair.
type proof struct {
	until time.Time     // when calls stop waiting for it
	done  chan struct{} // closed when err is written
	err   error
}

// errNoTry: there was no port to try by.
var errNoTry = errors.New("cannot be tried")

// start returns the proof of a pair, which it begins if there is none.
func (p *proofs) start(n *nic, dev gpubuf.Device) (*proof, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pr := p.byDev[dev]; pr != nil {
		return pr, nil
	}
	if p.closed {
		return nil, ibverbs.ErrClosed
	}
	if p.byDev == nil {
		p.byDev = make(map[gpubuf.Device]*proof)
	}
	pr := &proof{until: time.Now().Add(proofPatience), done: make(chan struct{})}
	p.byDev[dev] = pr
	p.tasks.Go(func() {
		defer close(pr.done)
		if pr.err = n.try(dev); errors.Is(pr.err, errNoTry) {
			p.forget(dev) // the next one tries again
		}
	})
	return pr, nil
}

func (p *proofs) forget(dev gpubuf.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byDev, dev)
}

// prove returns nil if transfers between n and dev are known to work. It begins to
// try, and waits a little for the outcome.
func (p *proofs) prove(n *nic, dev gpubuf.Device) error {
	pr, err := p.start(n, dev)
	if err != nil {
		return err
	}
	patience := time.NewTimer(time.Until(pr.until))
	defer patience.Stop()
	select {
	case <-pr.done:
		return pr.err
	default:
	}
	select {
	case <-pr.done:
		return pr.err
	case <-patience.C:
		return fmt.Errorf("%w: %s and %s are still being tried", errStaged, n.dev.Name(), dev.Name())
	}
}

// proved reports whether the pair is known to work. It does not block.
func (p *proofs) proved(dev gpubuf.Device) bool {
	p.mu.Lock()
	pr := p.byDev[dev]
	p.mu.Unlock()
	if pr == nil {
		return false
	}
	select {
	case <-pr.done:
		return pr.err == nil
	default:
		return false
	}
}

// close waits for what is being tried, which is bounded, and has nothing begun any
// more.
func (p *proofs) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.tasks.Wait()
}

// try proves a pair.
func (n *nic) try(dev gpubuf.Device) error {
	r, err := n.loopRoute()
	if err != nil {
		return fmt.Errorf("%w: %s and %s %w: %w", errStaged, n.dev.Name(), dev.Name(), errNoTry, err)
	}
	if err := n.loop(r, dev); err != nil {
		return fmt.Errorf("%w: the transfer that proves %s and %s failed: %w", errStaged, n.dev.Name(), dev.Name(), err)
	}
	return nil
}

// loopRoute returns a port by which the NIC reaches itself.
func (n *nic) loopRoute() (route.Route, error) {
	ports, err := n.ports()
	if err != nil {
		return route.Route{}, err
	}
	return route.Choose(ports, route.Query{})
}

// looped is the memory and the queue pairs of one proof.
type looped struct {
	n      *nic
	dev    gpubuf.Device
	memory gpubuf.Memory
	reg    *registration
	ch     ibverbs.CompChannel
	cq     ibverbs.CQ
	qps    [2]ibverbs.QP
}

// loop moves bytes from one half of fresh device memory to the other.
func (n *nic) loop(r route.Route, dev gpubuf.Device) (err error) {
	l := &looped{n: n, dev: dev}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.open(r); err != nil {
		return err
	}
	want := make([]byte, proofBytes)
	rand.Read(want) // never fails (crypto/rand.Read)
	half := gpubuf.DevicePtr(l.memory.Size() / 2)
	if err := dev.CopyIn(l.memory.Base(), want); err != nil {
		return err
	}
	if err := l.transfer(uint64(half)); err != nil {
		return err
	}
	got := make([]byte, proofBytes)
	if err := flushWrites(dev); err != nil {
		return err
	}
	if err := dev.CopyOut(got, l.memory.Base()+half); err != nil {
		return err
	}
	if !bytes.Equal(want, got) {
		return errors.New("other bytes arrived than were sent")
	}
	return nil
}

func (l *looped) open(r route.Route) (err error) {
	if l.memory, err = l.dev.Alloc(maxChunk); err != nil {
		return err
	}
	if l.reg, err = l.n.regions.registerOrEvict(l.memory); err != nil {
		return err
	}
	if l.ch, err = l.n.ctx.CreateCompChannel(); err != nil {
		return err
	}
	if l.cq, err = l.n.ctx.CreateCQ(4, l.ch); err != nil {
		return err
	}
	for i := range l.qps {
		l.qps[i], err = l.n.pd.CreateQP(ibverbs.QPInitAttr{SendCQ: l.cq, RecvCQ: l.cq, MaxSendWR: 1, MaxRecvWR: 1})
		if err != nil {
			return err
		}
		if err = toInit(l.qps[i], &r); err != nil {
			return err
		}
	}
	for i, q := range l.qps {
		if err = toRTR(q, &r, r.Endpoint(), QPInfo{QPNum: l.qps[1-i].Num()}); err != nil {
			return err
		}
	}
	for _, q := range l.qps {
		if err = toRTS(q, true, 0); err != nil {
			return err
		}
	}
	return nil
}

// transfer sends from the memory's start to half, and waits for both
// completions.
func (l *looped) transfer(half uint64) error {
	sge := func(off uint64) []ibverbs.SGE {
		p := l.reg.pieces[0]
		return []ibverbs.SGE{{Addr: p.addr + off, Length: proofBytes, LKey: p.mr.LKey()}}
	}
	if _, err := l.qps[1].PostRecv([]ibverbs.RecvWR{{WRID: wridRecv, SGList: sge(half)}}); err != nil {
		return err
	}
	if _, err := l.qps[0].PostSend([]ibverbs.SendWR{{SGList: sge(0), Opcode: ibverbs.WRSend, Flags: ibverbs.SendSignaled}}); err != nil {
		return err
	}
	bound := time.AfterFunc(proofBound, func() { l.ch.Close() })
	defer bound.Stop()
	var wcs [2]ibverbs.WC
	for done := 0; done < len(wcs); {
		if err := l.cq.ReqNotify(false); err != nil {
			return err
		}
		n, err := l.cq.Poll(wcs[:])
		if err != nil {
			return err
		}
		for _, wc := range wcs[:n] {
			if wc.Status != ibverbs.WCSuccess {
				return &ibverbs.WCError{Status: wc.Status, VendorErr: wc.VendorErr, QPNum: wc.QPNum}
			}
		}
		if done += n; n > 0 {
			continue
		}
		if _, err := l.ch.Wait(); err != nil {
			return fmt.Errorf("nothing arrived for %v: %w", proofBound, err)
		}
	}
	return nil
}

// close frees in order: nothing touches the memory once the queue pairs are
// gone.
func (l *looped) close() error {
	var errs []error
	for _, q := range l.qps {
		if q != nil {
			errs = append(errs, q.Destroy())
		}
	}
	if l.cq != nil {
		errs = append(errs, l.cq.Destroy())
	}
	if l.ch != nil {
		errs = append(errs, l.ch.Close())
	}
	if l.reg != nil {
		errs = append(errs, dereg(l.reg.pieces))
	}
	if l.memory != nil {
		errs = append(errs, l.memory.Free())
	}
	return errors.Join(errs...)
}

// flushWrites has what a NIC wrote to dev visible to work launched from now on.
func flushWrites(dev gpubuf.Device) error {
	if f, ok := dev.(gpubuf.Flusher); ok {
		return f.FlushRDMAWrites()
	}
	return nil
}
