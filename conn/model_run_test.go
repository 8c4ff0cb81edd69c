package conn

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs/faultverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft"
	"github.com/gdrpc/gdrpc/ibverbs/soft/fabric"
)

// modelPatience is how long, in virtual time, anything may take that nobody
// bounds otherwise: a little more than a Conn lingers.
const modelPatience = lingerBound + 30*time.Second

// modelRun is one run of the model.
type modelRun struct {
	plan     *modelPlan
	ledger   *modelLedger
	net      modelNet
	netDelay *modelDelay
	sides    [2]*modelSide
	links    []*modelLink
	fabric   *fabric.Fabric       // of a run in mode verbs
	nics     [2][2]*fabric.Device // of each side, on it
	tasks    sync.WaitGroup

	mu   sync.Mutex
	held []func() // checks and frees memory that was given back; guarded by mu
}

// modelSide is one of the two processes.
type modelSide struct {
	d     *Domain
	pools map[string]*modelPool
}

// runModel does what the plan says and returns the rules that were broken.
func runModel(plan *modelPlan) []string {
	r := &modelRun{plan: plan, ledger: newModelLedger(), fabric: fabric.New()}
	r.netDelay = &modelDelay{rng: plan.rng, most: plan.netDelay}
	r.net.delay = r.netDelay
	if err := r.open(); err != nil {
		return []string{err.Error()}
	}
	for _, l := range r.links {
		l.run()
	}
	for i := range plan.moves {
		r.tasks.Go(func() { r.move(uint64(100+i), &plan.moves[i]) })
	}
	r.tasks.Wait()
	r.settle()
	r.close()
	return r.ledger.finish()
}

func (r *modelRun) open() error {
	for side := range r.sides {
		s, err := r.openSide(side)
		if err != nil {
			return err
		}
		r.sides[side] = s
	}
	for _, p := range r.plan.links {
		l, err := newModelLink(r, p)
		if err != nil {
			return err
		}
		r.links = append(r.links, l)
	}
	return nil
}

func (r *modelRun) openSide(side int) (*modelSide, error) {
	cfg := r.plan.cfg
	cfg.Device = &bookedDevice{
		Device: faultverbs.Wrap(soft.NewDevice(nil), r.plan.script(side)),
		ledger: r.ledger, lossy: r.plan.lossy || r.plan.stalls(),
	}
	if r.plan.verbs {
		r.addNICs(side, &cfg)
	}
	s := &modelSide{pools: make(map[string]*modelPool)}
	var err error
	if s.d, err = NewDomain(&cfg); err != nil {
		return nil, err
	}
	for kind := range pools {
		delay := &modelDelay{rng: r.plan.rng, most: r.plan.copyDelay}
		if s.pools[kind], err = newModelPool(kind, r.ledger, delay, r.plan.seed); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// settle holds what is idle to having everything back.
func (r *modelRun) settle() {
	for range 2 { // the first poll may have credits sent
		time.Sleep(3 * eagerKeep) // pushes that nobody claims, completions that are late
		for _, l := range r.links {
			pollStream(l.ends[0])
			pollStream(l.ends[1])
		}
	}
	for _, l := range r.links {
		l.check()
		if l.calm() {
			for side, c := range l.ends {
				for _, f := range idleFaults(c, l.ends[1-side]) {
					r.ledger.fault("idle side %d of %s: %s", side, l.plan, f)
				}
			}
		}
	}
}

// close closes everything in order and reports what does not go.
func (r *modelRun) close() {
	for _, l := range r.links {
		if err := l.close(); err != nil {
			r.ledger.fault("closing %s: %v", l.plan, err)
		}
	}
	r.net.relays.Wait()
	time.Sleep(r.sides[0].d.cfg.DrainTimeout + 2*closeBound) // stream lanes end by themselves
	for _, f := range r.held {
		f()
	}
	for side, s := range r.sides {
		if n := s.d.blocks.Stats().Slices; n > 0 {
			r.ledger.fault("side %d: %d blocks are still out", side, n)
		}
		if err := s.d.Close(); err != nil {
			r.ledger.fault("side %d: %v", side, err)
		}
		for kind, p := range s.pools {
			if err := p.Close(); err != nil {
				r.ledger.fault("side %d: %s pool: %v", side, kind, err)
			}
		}
	}
}

// hold keeps a check for the end of the run.
func (r *modelRun) hold(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = append(r.held, f)
}

// await waits for ch, which must not take for ever.
func (r *modelRun) await(ch <-chan struct{}, format string, args ...any) {
	select {
	case <-ch:
		return
	case <-time.After(modelPatience):
		// The run will not end, so that its faults are told now.
		r.ledger.fault("waits for ever: %s", fmt.Sprintf(format, args...))
		fmt.Fprintf(os.Stderr, "GDR_TEST_SEED=%d: %v\n%q\n", r.plan.seed, r.plan, r.ledger.faults)
	}
	<-ch
}
