package dialer

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
)

// logLines are the lines of a log.
type logLines chan string

// Write implements io.Writer.
func (l logLines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// TestRequireHungUp: a dial that fails by the client's own Require when the lanes
// stand is no warning to the server, which sees a peer that hangs up.
func TestRequireHungUp(t *testing.T) {
	log := make(logLines, 100)
	l := listenWith(t, listener.Config{Conn: conn.Config{NoIPC: true, Logger: slog.New(slog.NewTextHandler(log, nil))}})
	cfg := quiet
	cfg.Require = conn.PathIPC
	_, err := newDialer(t, Config{Conn: cfg}).dialTest(t, l.Addr().String())
	require.ErrorContains(t, err, "path ipc is required")
	accept(t, l) // which nobody reads or closes: the lanes tell
	for {
		select {
		case line := <-log:
			require.Contains(t, line, "level=INFO")
			if strings.Contains(line, "gdrpc: connection reset") {
				return
			}
		case <-time.After(patience):
			t.Fatal("the server does not notice")
		}
	}
}
