package rig

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Firewall forwards TCP to a target and closes each socket that begins as a
// join. It returns the address to dial.
func Firewall(t testing.TB, target string) string {
	return forward(t, func(c net.Conn) {
		head := make([]byte, len(joinHead))
		n, err := io.ReadFull(c, head)
		if bytes.Equal(head, joinHead) || n == 0 {
			return
		}
		if err != nil && n < len(head) && err != io.ErrUnexpectedEOF {
			return
		}
		relay(c, target, head[:n])
	})
}

// joinHead begins a Join (docs/wire.md, section 1).
var joinHead = []byte("\xC7gdrpc\n\x02")

// RoundRobin forwards TCP connections to the targets in turn, as a balancer of
// layer 4 does. It returns the address to dial.
func RoundRobin(t testing.TB, targets ...string) string {
	var mu sync.Mutex
	next := 0
	return forward(t, func(c net.Conn) {
		mu.Lock()
		target := targets[next%len(targets)]
		next++
		mu.Unlock()
		relay(c, target, nil)
	})
}

// forward accepts connections until the test ends, then ends those that it has.
func forward(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var tasks sync.WaitGroup
	var mu sync.Mutex
	open := make(map[net.Conn]struct{}) // guarded by mu
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = struct{}{}
			mu.Unlock()
			tasks.Go(func() {
				serve(c)
				c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		tasks.Wait()
	})
	return l.Addr().String()
}

// relay copies both ways, head first, until both directions have ended. The end
// of one direction is passed on; an error ends both.
func relay(c net.Conn, target string, head []byte) {
	up, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer up.Close()
	if _, err := up.Write(head); err != nil {
		return
	}
	var wg sync.WaitGroup
	pump := func(dst, src net.Conn) {
		// Without splice(2), whose pipes stay open until a collection.
		if _, err := io.Copy(struct{ io.Writer }{dst}, struct{ io.Reader }{src}); err != nil {
			dst.Close()
			src.Close()
			return
		}
		dst.(*net.TCPConn).CloseWrite()
	}
	wg.Go(func() { pump(up, c) })
	wg.Go(func() { pump(c, up) })
	wg.Wait()
}
