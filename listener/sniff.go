package listener

import (
	"io"
	"net"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/internal/handshake"
)

// sniffSize is how many bytes tell everything: the magic and the type of the
// first message.
const sniffSize = handshake.MagicSize + 1

// told reports whether b, a socket's first bytes, tell what it is.
func told(b []byte) bool {
	differs, _ := handshake.Match(b)
	return differs || len(b) >= sniffSize
}

// sniff waits for the bytes of which told says that they tell what c is, for at
// most timeout if that is not negative, in which nothing is written either: TLS may
// answer what it reads. It returns them and the connection to go
// on with: c itself where they could be looked at without being taken, else one
// that gives them back. An end before them is io.EOF.
func sniff(c net.Conn, timeout time.Duration, told func([]byte) bool) (net.Conn, []byte, error) {
	if timeout >= 0 {
		c.SetDeadline(time.Now().Add(timeout))
		defer c.SetDeadline(time.Time{})
	}
	if p, ok := peeker(c); ok {
		head, err := peek(p, told)
		return c, head, err
	}
	head := make([]byte, 0, sniffSize)
	for !told(head) {
		if len(head) == cap(head) { // only a ClientHello is longer
			head = append(make([]byte, 0, maxClientHello), head...)
		}
		n, err := c.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		if err != nil && !told(head) {
			return nil, nil, err
		}
	}
	return &prefixed{Conn: c, prefix: head}, head, nil
}

// looks holds buffers for single looks at what has come, so that a socket which
// is waited for has none.
var looks = sync.Pool{New: func() any { return new([maxClientHello]byte) }}

// prefixed is a connection whose first bytes were read.
type prefixed struct {
	net.Conn
	prefix []byte // not read again yet; Read's
}

// Read implements net.Conn.
func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.prefix) > 0 {
		n := copy(b, p.prefix)
		p.prefix = p.prefix[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// unwrap returns the connection below c once nothing has to be given back any
// more: the handshake reads more than was sniffed.
func unwrap(c net.Conn) net.Conn {
	if p, ok := c.(*prefixed); ok {
		return p.Conn
	}
	return c
}

// errEnded is an end before the bytes that tell.
var errEnded = io.EOF
