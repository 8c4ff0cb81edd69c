package conn

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
)

// Ahead hears of messages when their bytes have come, before whoever reads the
// stream takes them apart. It can begin landings then (Conn.LandAhead).
type Ahead interface {
	// Message is called, by the goroutine that reads, with what has come of the
	// payload of an HTTP/2 DATA frame, which may be the beginning of a gRPC
	// message. It must not block, nor keep b.
	Message(b []byte)
	// Ended is called once, on another goroutine, when the Conn has ended.
	// Landings that have begun, and that nobody will wait for, keep it from
	// being taken apart.
	Ended()
}

// SetAhead makes a the Conn's Ahead, unless it has one, and returns the one that it
// has. On a Conn whose sides share no memory, or whose bytes are not HTTP/2 in clear,
// it hears of nothing but the end.
func (c *Conn) SetAhead(a Ahead) Ahead {
	if !c.ahead.hears.CompareAndSwap(nil, &a) {
		return *c.ahead.hears.Load()
	}
	if c.ending.closed.get() != nil {
		c.ahead.end()
	}
	return a
}

// Ahead returns the Conn's Ahead; nil if it has none.
func (c *Conn) Ahead() Ahead {
	if a := c.ahead.hears.Load(); a != nil {
		return *a
	}
	return nil
}

// aheads is what a Conn has of an Ahead.
type aheads struct {
	may   bool // the two sides may share memory, without which nothing lands ahead; not written after New
	hears atomic.Pointer[Ahead]
	ended sync.Once

	mu     sync.Mutex // held while bytes are looked at; only who reads takes it
	frames dataFrames // guarded by mu
}

// read takes the next bytes of the stream.
func (s *aheads) read(b []byte) {
	var found func([]byte)
	if a := s.hears.Load(); a != nil {
		found = (*a).Message
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frames.walk(b, found)
}

// end tells the Ahead that the Conn has ended.
func (s *aheads) end() {
	if a := s.hears.Load(); a != nil {
		s.ended.Do((*a).Ended)
	}
}

// HTTP/2 frames (RFC 9113, sections 4.1, 6.1 and 6.5).
const (
	h2Header   = 9 // length (3 bytes), type, flags, stream (4 bytes)
	h2Data     = 0
	h2Padded   = 8 // flag of a DATA frame
	h2Settings = 4
)

// dataFrames finds the DATA frames in a stream of HTTP/2 frames. It reads their
// headers alone, and passes over the rest. A stream of anything else, such as TLS
// records, it leaves alone after the first header.
type dataFrames struct {
	skip  int // bytes before the next header
	head  [h2Header]byte
	have  int  // bytes of head
	begun bool // the first header was there
	other bool // it is no stream of frames
}

// first reports whether head can be the first one of a side: each begins with
// SETTINGS (section 3.4).
func (f *dataFrames) first() bool {
	return f.head[3] == h2Settings && [5]byte(f.head[4:]) == [5]byte{} // no ACK, and of no stream
}

// walk calls found, if it is not nil, with what is in b of the payload of each DATA
// frame whose payload begins there.
func (f *dataFrames) walk(b []byte, found func(payload []byte)) {
	for len(b) > 0 && !f.other {
		if f.skip > 0 {
			n := min(f.skip, len(b))
			f.skip, b = f.skip-n, b[n:]
			continue
		}
		n := copy(f.head[f.have:], b)
		f.have, b = f.have+n, b[n:]
		if f.have < h2Header {
			return
		}
		if !f.begun {
			f.begun = true
			if f.other = !f.first(); f.other {
				return
			}
		}
		f.have, f.skip = 0, int(binary.BigEndian.Uint32(f.head[:])>>8)
		payload := b[:min(f.skip, len(b))]
		if found != nil && len(payload) > 0 && f.head[3] == h2Data && f.head[4]&h2Padded == 0 {
			found(payload)
		}
	}
}
