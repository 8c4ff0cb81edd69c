package interop

import (
	"fmt"
	"testing"

	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

// knows says whether a client's very first call can know its peer by Hello.
func knows(c rig.ClientKind, s rig.ServerKind) bool {
	return c != rig.ForeignClient && c != rig.StockClient && (s == rig.GdrpcServer || s == rig.StockOnListener)
}

// TestFirstCall has attachments on the first call of all, when a peer may not
// be known yet: in a message that declares the field they arrive all the same.
func TestFirstCall(t *testing.T) {
	each(t, func(t *testing.T, s *rig.Server, client rig.ClientKind) {
		c := rig.Dial(t, client, s.Addr, rig.ClientConfig{})
		requireCall(t, s, c, rig.Call{Request: rig.Series(1, large), Order: rig.Order{Reply: rig.Series(2, large)}})
	})
}

// TestUndeclared has attachments in messages that do not declare the field.
func TestUndeclared(t *testing.T) {
	fails := &failure{codes.FailedPrecondition, []string{
		"not known to be gdrpc", "gdrpc.test.v1.PlainMessage", "repeated bytes gdrpc_attachments = 536870000;", "gdrpc.NewServer",
	}}
	call := rig.Call{Undeclared: true, Request: rig.Series(1, large), Order: rig.Order{Reply: rig.Series(2, large)}}
	each(t, func(t *testing.T, s *rig.Server, client rig.ClientKind) {
		c := rig.Dial(t, client, s.Addr, rig.ClientConfig{})
		if client == rig.StockClient {
			if s.Pool == nil {
				return // neither side has heard of attachments
			}
			_, err := c.Do(rig.Context(t), rig.Call{Undeclared: true, Order: call.Order})
			requireStatus(t, err, fails.code, fails.parts[:3]...)
			return
		}
		if !knows(client, s.Kind) {
			_, err := c.Do(rig.Context(t), call)
			requireStatus(t, err, fails.code, fails.parts...)
			requireCall(t, s, c, rig.Call{}) // introduces them
		}
		if matrix[client][s.Kind] == inField {
			_, err := c.Do(rig.Context(t), call)
			requireStatus(t, err, fails.code, fails.parts...)
			return
		}
		requireCall(t, s, c, call)
	})
}

// each runs a test for every pair of a server and a client.
func each(t *testing.T, test func(*testing.T, *rig.Server, rig.ClientKind)) {
	for _, server := range rig.ServerKinds() {
		s := rig.Serve(t, server, rig.ServerConfig{})
		for _, client := range rig.ClientKinds() {
			t.Run(fmt.Sprintf("%v/%v", server, client), func(t *testing.T) { test(t, s, client) })
		}
	}
}

// TestOnePort has all kinds of clients call one port at the same time.
func TestOnePort(t *testing.T) {
	const rounds = 20
	for _, server := range []rig.ServerKind{rig.GdrpcServer, rig.GdrpcServerOnNet} {
		t.Run(server.String(), func(t *testing.T) {
			s := rig.Serve(t, server, rig.ServerConfig{})
			done := make(chan error)
			for _, kind := range rig.ClientKinds() {
				c := rig.Dial(t, kind, s.Addr, rig.ClientConfig{})
				ctx := rig.Context(t)
				go func() { done <- repeat(rounds, func(i int) error { return c.Right(ctx, asks[i%7].call) }) }()
				go func() { done <- repeat(3, func(int) error { return fullDuplex(ctx, c, 4, 40_000) }) }()
			}
			for range 2 * len(rig.ClientKinds()) {
				require.NoError(t, <-done)
			}
			if s.Listener != nil {
				require.True(t, rig.Eventually(func() bool { return s.Listener.Stats().Joins == 4 })) // counted a little later
				st := s.Listener.Stats()
				require.EqualValues(t, 2, st.SoftJoined)
				require.EqualValues(t, 1, st.SoftShared)
				require.EqualValues(t, 1, st.Plain)
				require.EqualValues(t, 2, st.Original)
			}
		})
	}
}

func repeat(n int, f func(int) error) error {
	for i := range n {
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}
