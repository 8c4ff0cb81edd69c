package conn

import (
	"fmt"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs/faultverbs"
)

// modelPlan is everything that one run does. It depends on the seed only; what
// becomes of it depends on how goroutines are scheduled too.
type modelPlan struct {
	seed   uint64
	rng    *modelRand // for what is drawn while the run is under way
	cfg    Config
	limits Limits
	lossy  bool // flushes may be missing
	verbs  bool // on NICs
	links  []modelLinkPlan
	moves  []modelMove

	netDelay, copyDelay, workDelay time.Duration // at most
}

// modelLinkPlan is one pair of Conns.
type modelLinkPlan struct {
	shared bool // all lanes on one socket
	eager  bool // with an eager lane, beside the control lane
	bulks  int
	trade  int // bytes of stream traffic each way
	storm  int // frames that each side sends at once
	upset  modelUpset
}

// modelUpset is what happens to a link beside its traffic.
type modelUpset struct {
	kind upsetKind
	side int           // who closes
	at   time.Duration // when
	lane int           // which socket is cut; how many lanes are lost
	cut  int64         // after how many bytes; 0: at a time
	long time.Duration // how long it stalls
}

type upsetKind int

const (
	upsetNone  upsetKind = iota
	upsetCut             // a socket dies
	upsetClose           // a side closes
	upsetBoth            // both sides close at once
	upsetStall           // a socket carries nothing for a time
	upsetRails           // further bulk lanes are lost, in mode verbs
)

// modelMove is one offer and its landings.
type modelMove struct {
	at       time.Duration
	from     int // the side that offers
	size     int64
	src      string // kind of memory
	push     bool   // ahead, on every link
	event    modelEvent
	landings []modelLand
	end      modelEnd
	endAt    time.Duration
}

// modelEvent is what becomes of a source that is not ready.
type modelEvent struct {
	kind eventKind
	at   time.Duration
}

type eventKind int

const (
	eventNone eventKind = iota // the source is ready
	eventFires
	eventFails
	eventNever
)

// modelEnd is how an offer ends.
type modelEnd int

const (
	endAfter    modelEnd = iota // withdrawn once all landings are over
	endWithdraw                 // withdrawn at a time
	endRelease                  // released by the peer at a time
	endLease                    // by its lease
)

// modelLand is one landing of an offer.
type modelLand struct {
	at     time.Duration
	link   int
	dst    string        // kind of memory
	delta  int64         // by which dst is longer than the offer
	bogus  bool          // a token that nobody knows
	cancel time.Duration // 0: never
}

func newModelPlan(seed uint64) *modelPlan {
	r := newModelRand(seed, 1)
	p := &modelPlan{seed: seed, rng: newModelRand(seed, 2)}
	p.verbs = seed%3 == 0
	p.cfg = *quiet()
	p.cfg.StagingBlock = pick(r, 4<<10, 16<<10, 64<<10)
	p.cfg.StagingBlocks = pick(r, 2, 3, 8)
	if r.one(8) {
		p.cfg.MaxOffers = 3
	}
	p.limits = Limits{
		ControlDepth: controlDepth,
		BulkDepth:    pick(r, 2, 3, 7, 16, bulkDepth),
		MaxMsg:       pick[uint32](r, 4<<10, 20000, 64<<10, 1<<20),
		StagingBlock: uint32(p.cfg.StagingBlock),
		StreamBlock:  pick[uint32](r, 4<<10, 20000, 32<<10, streamBlock),
	}
	p.netDelay = pick(r, 0, 0, 300*time.Microsecond, 2*time.Millisecond)
	p.copyDelay = pick(r, 0, time.Millisecond)
	p.workDelay = pick(r, 0, 0, time.Millisecond, 5*time.Millisecond)
	p.lossy = true
	for range pick(r, 1, 1, 2) {
		l := planLink(r)
		if p.verbs && l.upset.kind == upsetNone && r.one(2) {
			l.upset = modelUpset{kind: upsetRails, lane: 1 + r.n(6), at: soonish(r)}
		}
		p.links = append(p.links, l)
		p.lossy = p.lossy && l.upset.kind != upsetCut && l.upset.kind != upsetRails // which a lane learns from flushes
	}
	p.lossy = p.lossy && r.one(4)
	big := r.one(12)
	count := 1 + r.n(30)
	if big {
		count = 1 + r.n(5)
	}
	for range count {
		p.moves = append(p.moves, p.planMove(r, big))
	}
	p.cfg.Checksums = r.one(2)
	return p
}

func planLink(r *modelRand) modelLinkPlan {
	l := modelLinkPlan{shared: r.one(3), eager: r.one(2), bulks: pick(r, 1, 1, 2, 4), trade: r.n(100 << 10)}
	if r.one(4) {
		l.storm = r.n(300)
	}
	switch r.n(9) {
	case 0, 1:
		l.upset = modelUpset{kind: upsetCut, lane: r.n(2 + l.bulks), at: r.duration(30 * time.Millisecond)}
		if r.one(2) {
			l.upset.cut = 1 + int64(r.n(1+r.n(400<<10)))
		}
	case 2:
		l.upset = modelUpset{kind: upsetClose, side: r.n(2), at: r.duration(30 * time.Millisecond)}
	case 3:
		l.upset = modelUpset{kind: upsetBoth, at: r.duration(30 * time.Millisecond)}
	case 4:
		l.upset = modelUpset{kind: upsetStall, lane: r.n(2 + l.bulks), at: soonish(r), long: r.duration(pick(r, time.Second, time.Minute))}
	}
	return l
}

// soonish is a time at which much is going on.
func soonish(r *modelRand) time.Duration {
	if r.one(3) {
		return 0
	}
	return r.duration(20 * time.Millisecond)
}

func (p *modelPlan) planMove(r *modelRand, big bool) modelMove {
	m := modelMove{
		at: soonish(r), from: r.n(2), size: planSize(r, big), src: pick(r, "host", "emu", "async"), push: r.one(2),
		end: pick(r, endAfter, endAfter, endWithdraw, endRelease, endLease), endAt: soonish(r),
	}
	if r.one(4) {
		m.event = modelEvent{kind: pick(r, eventFires, eventFires, eventFires, eventFails, eventNever), at: soonish(r)}
		if m.event.kind == eventNever {
			m.end = endWithdraw
		}
	}
	for range pick(r, 0, 1, 1, 1, 1, 2, 3) {
		m.landings = append(m.landings, p.planLand(r, m.size))
	}
	return m
}

func planSize(r *modelRand, big bool) int64 {
	most := pick(r, 1, 300, 5000, 100<<10, 300<<10)
	if big {
		most = 12 << 20
	}
	return int64(r.n(most + 1))
}

func (p *modelPlan) planLand(r *modelRand, size int64) modelLand {
	l := modelLand{at: soonish(r), link: r.n(len(p.links)), dst: pick(r, "host", "emu", "async"), bogus: r.one(20)}
	if r.one(10) {
		l.delta = int64(r.n(2000)) - 1000
		l.delta = max(l.delta, -size)
	}
	if r.one(5) {
		l.cancel = 1 + soonish(r)
	}
	return l
}

// stalls says that a socket stalls, so that a queue pair may be destroyed while a
// send of it is stuck.
func (p *modelPlan) stalls() bool {
	for _, l := range p.links {
		if l.upset.kind == upsetStall {
			return true
		}
	}
	return false
}

// script is what the device of one side does to completions.
func (p *modelPlan) script(side int) *faultverbs.Script {
	s := faultverbs.Random(p.seed*2+uint64(side), p.workDelay)
	if p.lossy {
		s.Hold = faultverbs.Longest(s.Hold, faultverbs.HoldFlushes(faultverbs.Never))
	}
	return s
}

// String tells what a run is like.
func (p *modelPlan) String() string {
	return fmt.Sprintf("verbs %v, limits %+v, %d staging blocks, %d offers at most, delays: net %v, copies %v, completions %v, lossy %v, checksums %v, links %v, %d moves",
		p.verbs, p.limits, p.cfg.StagingBlocks, p.cfg.MaxOffers, p.netDelay, p.copyDelay, p.workDelay, p.lossy, p.cfg.Checksums, p.links, len(p.moves))
}
