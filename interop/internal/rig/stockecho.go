package rig

import (
	"context"

	"github.com/gdrpc/gdrpc/internal/testpb"
)

// StockEcho is the same service as Echo, of a server that never heard of gdrpc:
// attachments are values of a field.
type StockEcho struct {
	chat
	Name string
}

var _ testpb.EchoServer = (*StockEcho)(nil)

// Declared implements testpb.EchoServer.
func (e *StockEcho) Declared(_ context.Context, in *testpb.DeclaredMessage) (*testpb.DeclaredMessage, error) {
	o, err := parse[Order](in.GetText())
	if err != nil {
		return nil, err
	}
	seen := Seen{Server: e.Name, Sums: sums(in.GetGdrpcAttachments())}
	for range seen.Sums {
		seen.Paths = append(seen.Paths, FieldPath)
	}
	out := &testpb.DeclaredMessage{Text: text(seen)}
	for _, p := range o.Reply {
		out.GdrpcAttachments = append(out.GdrpcAttachments, p.Bytes())
	}
	if o.Bounce {
		out.GdrpcAttachments = in.GetGdrpcAttachments()
	}
	return out, nil
}

// Plain implements testpb.EchoServer. Its messages hold no attachments.
func (e *StockEcho) Plain(_ context.Context, _ *testpb.PlainMessage) (*testpb.PlainMessage, error) {
	return &testpb.PlainMessage{Text: text(Seen{Server: e.Name, Sums: []string{}})}, nil
}

func sums(list [][]byte) []string {
	s := make([]string, len(list))
	for i, b := range list {
		s[i] = Sum(b)
	}
	return s
}
