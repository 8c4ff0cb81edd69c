package conn

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHungUp has what the log says of peers that go, and of what a Conn that goes
// on has lost. Errors begin with the plain cause.
func TestHungUp(t *testing.T) {
	const closed = "the peer closed the connection (control lane: "
	for _, tt := range []struct {
		name string
		act  func(r *rogue)
		log  []string // parts of each line
		read string   // a part of Read's error; "": the stream goes on
	}{
		{"all at once", func(r *rogue) {
			r.control.Close()
			r.bulk.Close()
		}, []string{`level=INFO msg="gdrpc: connection reset" remote=pipe err="` + closed}, closed},
		{"the bulk lane first", func(r *rogue) {
			r.bulk.Close()
			synctest.Wait()
			time.Sleep(endBound / 2)
			r.control.Close()
		}, []string{`level=INFO msg="gdrpc: connection reset" remote=pipe err="` + closed}, closed},
		{"the bulk lane before its word", func(r *rogue) {
			r.bulk.Close()
			synctest.Wait()
			r.frame(frame{typ: frameConnEnd})
		}, nil, ""},
		{"the bulk lane alone", func(r *rogue) { r.bulk.Close() },
			[]string{`level=WARN msg="gdrpc: bulk lane lost; large attachments fail on this connection until it is dialled anew" remote=pipe err="the peer closed the connection (`}, ""},
		{"a rule broken", func(r *rogue) { r.frame(frame{typ: 77}) },
			[]string{`level=WARN msg="gdrpc: connection reset" remote=pipe err="control lane: unknown control frame type 77"`}, "control lane: unknown control frame type 77"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				r, server := newRogue(t, &Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				tt.act(r)
				time.Sleep(endBound) // of the bubble's time
				synctest.Wait()
				lines := strings.SplitAfter(log.String(), "\n")
				require.Len(t, lines[:len(lines)-1], len(tt.log), log.String())
				for i, want := range tt.log {
					require.Contains(t, lines[i], want)
				}
				if tt.read != "" {
					_, err := server.Read(make([]byte, 1))
					require.ErrorContains(t, err, "read gdr pipe->pipe: "+tt.read)
				}
			})
		})
	}
}

// TestCutIsNoEnd: a failure that a socket's end has caused is not the end of the
// bytes, and is all else that its causes are.
func TestCutIsNoEnd(t *testing.T) {
	client, server := sharedPair(t, quiet())
	s := client.stream.(*qpStream)
	s.fail(fmt.Errorf("wire: %w (%w)", io.EOF, net.ErrClosed))
	_, err := client.Read(make([]byte, 1))
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.NotErrorIs(t, err, io.EOF)
	require.ErrorIs(t, err, net.ErrClosed)
	require.ErrorContains(t, err, "wire: EOF")
	closeBoth(client, server)
}
