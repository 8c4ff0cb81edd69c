package conn

import (
	"errors"
	"sync/atomic"
)

// http2Preface is what an HTTP/2 client sends first (RFC 9113, section 3.4).
const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// preface watches the first bytes that the client of a stream sends. Only a
// stream that starts with exactly the HTTP/2 preface is in clear, so that
// attachments may travel in clear beside it.
type preface struct {
	allow bool         // both sides permit what the preface forbids
	seen  atomic.Int32 // bytes that matched so far, or prefaceOther
}

const prefaceOther = -1

var (
	errPrefaceOther   = errors.New("conn: the byte stream is not plain HTTP/2 (TLS or ALTS above the connection), so attachments stay inside it; with TLS below it they would leave it (dialer.Config.TLS, listener.Config.TLS)")
	errPrefacePending = errors.New("conn: the byte stream has not shown that it is plain HTTP/2 yet")
)

// observe takes the next bytes of the client's stream. One goroutine at a time
// calls it until the preface is decided. It returns true once, when it finds that
// the stream is something else.
func (p *preface) observe(b []byte) (other bool) {
	seen := int(p.seen.Load())
	if seen == prefaceOther || seen == len(http2Preface) {
		return false
	}
	n := min(len(b), len(http2Preface)-seen)
	if string(b[:n]) != http2Preface[seen:seen+n] {
		p.seen.Store(prefaceOther)
		return true
	}
	p.seen.Store(int32(seen + n))
	return false
}

// permitted reports whether attachments leave a stream that is something else,
// because both sides permit it.
func (p *preface) permitted() bool { return p.allow && p.seen.Load() == prefaceOther }

func (p *preface) check() error {
	switch p.seen.Load() {
	case prefaceOther:
		if p.allow {
			return nil
		}
		return errPrefaceOther
	case int32(len(http2Preface)):
		return nil
	}
	return errPrefacePending
}
