package listener

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// peeker returns the descriptor of a connection whose bytes on the socket are
// the bytes that it reads. A type of someone else's may embed a *net.TCPConn and
// read something other than what is on the socket, so exactly these count.
func peeker(c net.Conn) (syscall.RawConn, bool) {
	var raw syscall.RawConn
	var err error
	switch c := c.(type) {
	case *net.TCPConn:
		raw, err = c.SyscallConn()
	case *net.UnixConn:
		raw, err = c.SyscallConn()
	default:
		return nil, false
	}
	return raw, err == nil
}

// peek waits for the bytes that tell what the connection is and leaves them on
// the socket (recv(2), MSG_PEEK).
func peek(raw syscall.RawConn, told func([]byte) bool) ([]byte, error) {
	var head []byte
	var err error
	waitErr := raw.Read(func(fd uintptr) (done bool) {
		buf := looks.Get().(*[maxClientHello]byte)
		defer looks.Put(buf)
		var n int
		n, done, err = look(int(fd), buf[:], told)
		if done && err == nil {
			if !isTLS(buf[:n]) {
				n = min(n, sniffSize)
			}
			head = append(head, buf[:n]...)
		}
		return done
	})
	if waitErr != nil {
		return nil, waitErr
	}
	return head, err
}

// look takes one look. The runtime's poller is edge-triggered and the bytes
// stay where they are, so an end behind too few of them makes no later event:
// each look that does not tell asks for it.
func look(fd int, buf []byte, told func([]byte) bool) (n int, done bool, err error) {
	for {
		n, _, err = unix.Recvfrom(fd, buf, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err != unix.EINTR {
			break
		}
	}
	switch {
	case err == unix.EAGAIN:
		return 0, false, nil
	case err != nil:
		return 0, true, os.NewSyscallError("recvfrom", err)
	case n == 0:
		return 0, true, errEnded
	case told(buf[:n]):
		return n, true, nil
	case ended(fd):
		return recheck(fd, buf, told)
	}
	return n, false, nil
}

// recheck looks once more after the end was seen: bytes may have come between
// the look and the question, and none can come any more.
func recheck(fd int, buf []byte, told func([]byte) bool) (int, bool, error) {
	n, _, err := unix.Recvfrom(fd, buf, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if err == nil && told(buf[:n]) {
		return n, true, nil
	}
	return 0, true, errEnded
}

// ended reports whether the peer sends no more (poll(2)).
func ended(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}
