package listener

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Sizes of what precedes the parts of a ClientHello (RFC 8446, sections 4, 4.1.2
// and 5.1).
const (
	recordHeader    = 5
	handshakeHeader = 4
	maxRecord       = 1 << 14

	recordHandshake = 0x16
	typeClientHello = 1
	extensionALPN   = 16

	// maxClientHello bounds what is looked at, record headers included.
	// What clients send has up to 2 KiB, and some more with a long ticket.
	maxClientHello = 16 << 10
)

// Why the first bytes of a socket are no ClientHello, or not one yet.
var (
	errMore        = errors.New("more to come")
	errClientHello = errors.New("no TLS ClientHello")
)

// isTLS reports whether b begins a TLS handshake record.
func isTLS(b []byte) bool { return len(b) > 0 && b[0] == recordHandshake }

// protocols returns the application protocols that the ClientHello which begins
// at b offers, nil if none. The error is errMore as long as b is only a part of
// it, and wraps errClientHello if it cannot become one.
func protocols(b []byte) ([]string, error) {
	msg, err := handshakeMessage(b)
	if err != nil {
		return nil, err
	}
	list, ok := alpn(msg)
	if !ok {
		return nil, fmt.Errorf("%w: a length exceeds what holds it", errClientHello)
	}
	return list, nil
}

// handshakeMessage puts together the body of the first handshake message, which
// must be a ClientHello, from the records that carry it.
func handshakeMessage(b []byte) ([]byte, error) {
	whole := len(b)
	var msg []byte
	for {
		fragment, rest, err := record(b)
		if err != nil {
			return nil, more(err, whole)
		}
		msg, b = append(msg, fragment...), rest
		if len(msg) < handshakeHeader {
			continue
		}
		size := int(binary.BigEndian.Uint32(msg) & 0xffffff)
		switch {
		case msg[0] != typeClientHello:
			return nil, fmt.Errorf("%w: handshake message of type %d", errClientHello, msg[0])
		case size > maxClientHello:
			return nil, fmt.Errorf("%w of at most %d bytes: it has %d", errClientHello, maxClientHello, size)
		case len(msg) >= handshakeHeader+size:
			return msg[handshakeHeader:][:size], nil
		}
	}
}

// more turns errMore into an error if so much is there that nothing more will
// be looked at.
func more(err error, have int) error {
	if err == errMore && have >= maxClientHello {
		return fmt.Errorf("%w in the first %d bytes", errClientHello, have)
	}
	return err
}

// record cuts one record of a handshake off b.
func record(b []byte) (fragment, rest []byte, err error) {
	switch {
	case len(b) > 0 && b[0] != recordHandshake:
		return nil, nil, fmt.Errorf("%w: record of type %d", errClientHello, b[0])
	case len(b) > 1 && b[1] >= 0x10: // as lenient as crypto/tls before a version is agreed
		return nil, nil, fmt.Errorf("%w: record of version %d", errClientHello, b[1])
	case len(b) < recordHeader:
		return nil, nil, errMore
	}
	size := int(binary.BigEndian.Uint16(b[3:]))
	switch {
	case size == 0 || size > maxRecord:
		return nil, nil, fmt.Errorf("%w: record of %d bytes", errClientHello, size)
	case len(b) < recordHeader+size:
		return nil, nil, errMore
	}
	return b[recordHeader:][:size], b[recordHeader+size:], nil
}

// alpn finds the protocols that a ClientHello's body offers. It reports false if
// a length in it is wrong.
func alpn(body []byte) (list []string, ok bool) {
	c := cursor(body)
	const versionAndRandom = 2 + 32
	c.take(versionAndRandom)
	c.vector(1) // session id
	c.vector(2) // cipher suites
	c.vector(1) // compression methods
	if c != nil && len(c) == 0 {
		return nil, true // no extensions, as in TLS 1.0
	}
	extensions := c.vector(2)
	for len(extensions) > 0 {
		kind := extensions.take(2)
		data := extensions.vector(2)
		if kind == nil || data == nil {
			return nil, false
		}
		if binary.BigEndian.Uint16(kind) == extensionALPN {
			return protocolNames(data)
		}
	}
	return nil, extensions != nil
}

// protocolNames reads the list in the extension (RFC 7301, section 3.1).
func protocolNames(data cursor) (list []string, ok bool) {
	names := data.vector(2)
	for len(names) > 0 {
		name := names.vector(1)
		if len(name) == 0 {
			return nil, false
		}
		list = append(list, string(name))
	}
	return list, names != nil
}

// cursor is what is left to parse; nil once something did not fit. What fits is
// never nil, also if it is empty.
type cursor []byte

// take cuts n bytes off.
func (c *cursor) take(n int) cursor {
	if *c == nil || n > len(*c) {
		*c = nil
		return nil
	}
	b := (*c)[:n:n]
	*c = (*c)[n:]
	return b
}

// vector cuts off what a length of size bytes precedes.
func (c *cursor) vector(size int) cursor {
	n := 0
	for _, b := range c.take(size) {
		n = n<<8 | int(b)
	}
	return c.take(n)
}
