package conn

import (
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// modelRand is a random generator that goroutines share.
type modelRand struct {
	mu  sync.Mutex
	rng *rand.Rand // guarded by mu
}

func newModelRand(seed, stream uint64) *modelRand {
	return &modelRand{rng: rand.New(rand.NewPCG(seed, stream))}
}

// n returns a number from 0 up to most, without it.
func (r *modelRand) n(most int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rng.IntN(most)
}

// one returns true once in n times.
func (r *modelRand) one(in int) bool { return r.n(in) == 0 }

func (r *modelRand) duration(most time.Duration) time.Duration {
	return time.Duration(r.n(int(most)))
}

func pick[T any](r *modelRand, from ...T) T { return from[r.n(len(from))] }

// modelNet makes connections in memory that have latency and can be cut.
type modelNet struct {
	delay  *modelDelay
	relays sync.WaitGroup
}

// modelSocket is one connection with what can be done to it.
type modelSocket struct {
	ends  [2]net.Conn
	cut   func()
	fault *modelFault
}

// dial makes a connection. If after is positive it is cut once that many bytes
// have gone through it.
func (n *modelNet) dial(after int64) *modelSocket {
	a, x := net.Pipe()
	y, b := net.Pipe()
	f := &modelFault{left: after, bounded: after > 0}
	n.relays.Go(func() { n.relay(y, x, f) })
	n.relays.Go(func() { n.relay(x, y, f) })
	return &modelSocket{ends: [2]net.Conn{a, b}, cut: func() { x.Close(); y.Close() }, fault: f}
}

// relay moves bytes from src to dst until one of them is closed, or the fault
// cuts them.
func (n *modelNet) relay(dst, src net.Conn, f *modelFault) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 64<<10)
	for {
		k, err := src.Read(buf)
		if k > 0 {
			n.delay.wait()
			time.Sleep(f.stalled())
			allowed := f.take(k)
			if _, werr := dst.Write(buf[:allowed]); werr != nil || allowed < k {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// modelFault is what goes wrong with a connection.
type modelFault struct {
	bounded bool
	mu      sync.Mutex
	left    int64     // bytes until it is cut, if bounded; guarded by mu
	until   time.Time // nothing moves before; guarded by mu
}

// take returns how many of n bytes still get through.
func (f *modelFault) take(n int) int {
	if !f.bounded {
		return n
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n = int(min(int64(n), f.left))
	f.left -= int64(n)
	return n
}

// stall has nothing move for d.
func (f *modelFault) stall(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = time.Now().Add(d)
}

func (f *modelFault) stalled() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Until(f.until)
}
