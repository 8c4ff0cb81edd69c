package handshake

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/emptypb"
)

// exchange is one message of a transcript.
type exchange struct {
	sock   string // "bootstrap", or the lane that the socket joins for
	client bool   // it is the client's
	bytes  []byte
}

// transcript is everything that the two sides of one handshake say, in an order
// in which it could have been said one by one. In a file each message is a line:
// the socket, C or S, and the bytes; lines that begin with # are comments.
type transcript []exchange

const bootstrap = "bootstrap"

func (tr transcript) String() string {
	var b strings.Builder
	for _, e := range tr {
		fmt.Fprintf(&b, "%s %s %x\n", e.sock, map[bool]string{true: "C", false: "S"}[e.client], e.bytes)
	}
	return b.String()
}

func transcriptFile(name string) string { return filepath.Join("testdata", "transcripts", name+".txt") }

// readTranscript reads a committed transcript.
func readTranscript(t *testing.T, name string) (tr transcript) {
	t.Helper()
	text, err := os.ReadFile(transcriptFile(name))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		require.Len(t, f, 3)
		b, err := hex.DecodeString(f[2])
		require.NoError(t, err)
		tr = append(tr, exchange{f[0], f[1] == "C", b})
	}
	require.NotEmpty(t, tr)
	return tr
}

// sockName names the socket whose first message is b.
func sockName(b []byte) string {
	j := new(wirepb.Join)
	r := bytes.NewReader(b)
	t, size, err := readHeader(r, clientMagic)
	if err != nil || t != TypeJoin || readBody(r, size, j) != nil {
		return bootstrap
	}
	ref := laneRef{conn.LaneKind(j.GetLane()), j.GetIndex()}
	return strings.ReplaceAll(ref.String(), " ", "-")
}

// readMessage reads one message as it is.
func readMessage(t *testing.T, sock net.Conn, magic [MagicSize]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	tee := &teed{Conn: sock, to: &b}
	_, size, err := readHeader(tee, magic)
	require.NoError(t, err)
	require.NoError(t, readBody(tee, size, new(emptypb.Empty)))
	return b.Bytes()
}

// teed notes what is read.
type teed struct {
	net.Conn
	to *bytes.Buffer
}

func (c *teed) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.to.Write(b[:n])
	return n, err
}

// tape records the sockets of one client.
type tape struct {
	mu    sync.Mutex
	socks [][]exchange // guarded by mu
}

func (t *tape) wrap(sock net.Conn) net.Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.socks = append(t.socks, nil)
	return &taped{Conn: sock, tape: t, index: len(t.socks) - 1}
}

func (t *tape) note(index int, client bool, b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.socks[index]
	if n := len(s); n == 0 || s[n-1].client != client {
		s = append(s, exchange{client: client})
	}
	last := &s[len(s)-1]
	last.bytes = append(last.bytes, b...)
	t.socks[index] = s
}

// transcript puts the sockets in order: the two Hellos, the joins by name, the
// rest.
func (t *tape) transcript() (tr transcript) {
	t.mu.Lock()
	defer t.mu.Unlock()
	byName := make(map[string][]exchange)
	var joins []string
	for _, s := range t.socks {
		name := sockName(s[0].bytes)
		for i := range s {
			s[i].sock = name
		}
		byName[name] = s
		if name != bootstrap {
			joins = append(joins, name)
		}
	}
	slices.Sort(joins)
	slices.Reverse(joins) // control first, as the code starts them
	boot := byName[bootstrap]
	tr = append(tr, boot[:2]...)
	for _, name := range joins {
		tr = append(tr, byName[name]...)
	}
	return append(tr, boot[2:]...)
}

type taped struct {
	net.Conn
	tape  *tape
	index int
}

func (c *taped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.tape.note(c.index, false, b[:n])
	return n, err
}

func (c *taped) Write(b []byte) (int, error) {
	c.tape.note(c.index, true, b)
	return c.Conn.Write(b)
}

// scriptedLane makes lanes whose queue pairs are the same in each run.
func scriptedLane(kind conn.LaneKind) (Lane, error) {
	l, err := newFakeLane(kind)
	l.(*fakeLane).qp = conn.QPInfo{QPNum: 0x100 * uint32(kind), PSN: 0x70 + uint32(kind)}
	return l, err
}

// scriptedPair makes two sides that always say the same: nonces, secrets and
// challenges are zeros.
func scriptedPair() (*Client, *Server) {
	side := self()
	side.boot = nil
	server := side
	side.Codec = true
	return &Client{Self: side, NewLane: scriptedLane, rand: zeros{}}, &Server{Self: server, NewLane: scriptedLane, rand: zeros{}}
}

// record runs a handshake of the two sides.
func record(t *testing.T, c *Client, s *Server) transcript {
	t.Helper()
	ts := newTestServer(t, s)
	tp := new(tape)
	if c.DialJoin == nil {
		c.DialJoin = func(ctx context.Context, _ string) (net.Conn, error) {
			sock, err := new(net.Dialer).DialContext(ctx, "tcp", ts.addr())
			if err != nil {
				return nil, err
			}
			return tp.wrap(sock), nil
		}
	}
	sock := tp.wrap(dial(t, ts.addr()))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := c.Do(ctx, sock)
	require.NoError(t, err)
	defer res.Close()
	require.NoError(t, ts.outcome(t).err)
	return tp.transcript()
}
