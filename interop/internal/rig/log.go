package rig

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// Log keeps what is logged. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// Logger returns a logger that writes lines of key=value here.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Lines returns the lines that contain a text.
func (l *Log) Lines(part string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, part) {
			lines = append(lines, line)
		}
	}
	return lines
}
