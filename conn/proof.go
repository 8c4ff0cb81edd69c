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

const (
	proofBytes = 192<<10 + 64
	proofBound = 2 * time.Second
)

// proofs holds what is known of one NIC and each device of memory.
type proofs struct {
	mu    sync.Mutex
	byDev map[gpubuf.Device]*proof // guarded by mu
}

// proof is the state of one pair.
type proof struct {
	mu   sync.Mutex // held during the transfer
	done bool       // guarded by mu
	err  error      // guarded by mu
}

func (p *proofs) of(dev gpubuf.Device) *proof {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byDev == nil {
		p.byDev = make(map[gpubuf.Device]*proof)
	}
	if p.byDev[dev] == nil {
		p.byDev[dev] = new(proof)
	}
	return p.byDev[dev]
}

// prove returns nil if transfers between n and dev work. It tries once, and
// again if there was no port to try by.
func (p *proofs) prove(n *nic, dev gpubuf.Device) error {
	pr := p.of(dev)
	pr.mu.Lock()
	defer pr.mu.Unlock()
	if !pr.done {
		r, err := n.loopRoute()
		if err != nil {
			return fmt.Errorf("%w: %s and %s cannot be tried: %w", errStaged, n.dev.Name(), dev.Name(), err)
		}
		pr.done = true
		if err := n.loop(r, dev); err != nil {
			pr.err = fmt.Errorf("%w: the transfer that proves %s and %s failed: %w", errStaged, n.dev.Name(), dev.Name(), err)
		}
	}
	return pr.err
}

// proved reports whether prove has been asked, and said yes. It does not block.
func (p *proofs) proved(dev gpubuf.Device) bool {
	pr := p.of(dev)
	if !pr.mu.TryLock() {
		return false // it is being tried
	}
	defer pr.mu.Unlock()
	return pr.done && pr.err == nil
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
	if l.reg, err = l.n.regions.register(l.memory); err != nil {
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
		if err := l.cq.ReqNotify(); err != nil {
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
		errs = append(errs, l.reg.dereg())
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
