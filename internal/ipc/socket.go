package ipc

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// sendBound is how long a message may wait for a peer that does not read.
const sendBound = 2 * time.Second

// Socket is a proved Unix socket. One goroutine at a time may receive and one
// send; Interrupt and Close may be called from any.
type Socket struct {
	c    *net.UnixConn
	buf  [maxPacket]byte
	oob  [64]byte
	sent [maxPacket]byte
}

// Send sends one message. It blocks while the peer does not read, for a bounded
// time. m.File stays the caller's.
func (s *Socket) Send(m *Message) error {
	if err := s.c.SetWriteDeadline(time.Now().Add(sendBound)); err != nil {
		return err
	}
	return s.write(m.encode(s.sent[:0]), m.File)
}

func (s *Socket) write(b []byte, f *os.File) error {
	n, _, err := s.c.WriteMsgUnix(b, rights(f), nil)
	if err == nil && n != len(b) {
		err = fmt.Errorf("%d of %d bytes were sent", n, len(b))
	}
	return err
}

// Receive waits for a message and returns it; io.EOF once the peer has closed
// its side. A message that breaks the rules is an ErrMalformed, and its
// descriptors are closed.
func (s *Socket) Receive() (*Message, error) {
	b, files, err := s.read()
	if err != nil {
		return nil, err
	}
	m := new(Message)
	err = m.decode(b)
	want := 0
	if m.wantsFile() {
		want = 1
	}
	if err == nil && len(files) != want {
		err = fmt.Errorf("%w: type %d with %d descriptors", ErrMalformed, m.Type, len(files))
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	if want == 1 {
		m.File = files[0]
	}
	return m, nil
}

// read returns the next packet, which is valid until the next read, and the
// descriptors that came with it.
func (s *Socket) read() ([]byte, []*os.File, error) {
	n, oobn, flags, _, err := s.c.ReadMsgUnix(s.buf[:], s.oob[:])
	files, badRights := filesOf(s.oob[:oobn])
	switch {
	case err != nil:
	case truncated(flags):
		err = fmt.Errorf("%w: more bytes than any message has", ErrMalformed)
	case cut(flags):
		err = fmt.Errorf("%w: descriptors were lost; there are more than any message has, or this process can open no more (ulimit -n)", ErrMalformed)
	case badRights != nil:
		err = fmt.Errorf("%w: %v", ErrMalformed, badRights)
	default:
		return s.buf[:n], files, nil
	}
	closeAll(files)
	return nil, nil, err
}

// Interrupt has the Receive under way fail, and later ones.
func (s *Socket) Interrupt() { s.c.SetReadDeadline(time.Unix(1, 0)) }

// AwaitEnd tells the peer that nothing more comes, and returns when the peer has
// closed its end. What comes until then is dropped. It takes the place of
// Receive, also after Interrupt.
func (s *Socket) AwaitEnd() {
	s.c.CloseWrite()
	s.c.SetReadDeadline(time.Time{})
	for {
		_, files, err := s.read()
		closeAll(files)
		if err != nil && !errors.Is(err, ErrMalformed) {
			return
		}
	}
}

// Close closes the socket, and ends Send and Receive.
func (s *Socket) Close() error { return s.c.Close() }

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
