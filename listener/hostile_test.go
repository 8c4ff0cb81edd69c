package listener

import (
	"net"
	"strings"
	"testing"
)

// TestHostile: whatever a socket sends, the listener serves the next client as
// ever. The dialogue's own table is in internal/handshake; these go through the
// port.
func TestHostile(t *testing.T) {
	head := func(typ byte, rest string) []byte { return append(append(magic[:7:7], typ), rest...) }
	tests := []struct {
		name  string
		send  []byte
		count func(Refused) uint64
	}{
		{"nothing", nil, func(r Refused) uint64 { return r.Closed }},
		{"part of the magic", magic[:5], func(r Refused) uint64 { return r.Closed }},
		{"magic alone", magic, func(r Refused) uint64 { return r.Closed }},
		{"type alone", head(1, ""), func(r Refused) uint64 { return r.Closed }},
		{"type 0", head(0, "\x00\x00\x00\x00"), func(r Refused) uint64 { return r.Malformed }},
		{"type Decide", head(5, "\x00\x00\x00\x00"), func(r Refused) uint64 { return r.Malformed }},
		{"oversize Hello", head(1, "\xff\xff\xff\xff"), func(r Refused) uint64 { return r.Malformed }},
		{"empty Hello", head(1, "\x00\x00\x00\x00"), func(r Refused) uint64 { return r.Malformed }},
		{"garbage Hello", head(1, "\x00\x00\x00\x05garba"), func(r Refused) uint64 { return r.Malformed }},
		{"long garbage", head(1, strings.Repeat("garbage", 5000)), func(r Refused) uint64 { return r.Malformed }},
		{"empty Join", head(2, "\x00\x00\x00\x00"), func(r Refused) uint64 { return r.UnknownSession }},
		{"garbage Join", head(2, "\x00\x00\x00\x05garba"), func(r Refused) uint64 { return r.Malformed }},
		{"truncated Join", head(2, "\x00\x00\x00\x05gar"), func(r Refused) uint64 { return r.Closed }},
	}
	l := listen(t, Config{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.count(l.Stats().Refused)
			c := dial(t, l, tt.send)
			c.(*net.TCPConn).CloseWrite()
			requireEnd(t, c)
			eventually(t, func() bool { return tt.count(l.Stats().Refused) == before+1 })
		})
	}
	requireServes(t, l)
	eventually(t, func() bool { return l.Stats().Handshakes+l.Stats().Silent+l.Stats().Waiting == 0 })
}
