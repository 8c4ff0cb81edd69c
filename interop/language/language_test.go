package language

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	several = rig.Series(1, 3, 300_000, 0, 16<<10, 70_001)
	large   = rig.Series(9, 5<<20)
)

// TestClients: a stock client of another language calls gdrpc servers, beside
// gdrpc clients on the same port.
func TestClients(t *testing.T) {
	for name, command := range languages {
		for _, kind := range []rig.ServerKind{rig.GdrpcServer, rig.GdrpcServerOnNet, rig.StockOnListener} {
			t.Run(name+"/"+kind.String(), func(t *testing.T) {
				peer := command(t)
				s := rig.Serve(t, kind, rig.ServerConfig{})
				testClient(t, s, start(t, peer, "client", s.Addr))
				if s.Pool != nil {
					c := rig.Dial(t, rig.GdrpcClient, s.Addr, rig.ClientConfig{})
					require.NoError(t, c.Right(rig.Context(t), rig.Call{Request: several, Order: rig.Order{Bounce: true}}))
				}
			})
		}
	}
}

func testClient(t *testing.T, s *rig.Server, p *process) {
	p.call(t, "Declared", "").requireBytes(t, nil)
	p.call(t, "Plain", "").requireBytes(t, nil)

	answer := p.call(t, "Declared", rig.Order{Bounce: true}.Text(), several...)
	answer.requireBytes(t, several)
	var seen rig.Seen
	require.NoError(t, json.Unmarshal([]byte(answer.Text), &seen))
	for i, a := range several {
		require.Equal(t, a.Sum(), seen.Sums[i], "the handler's attachment %d", i)
	}
	p.call(t, "Declared", rig.Order{Reply: several}.Text()).requireBytes(t, several)
	require.Equal(t, "stream", p.call(t, "Chat", "stream").Text)

	if s.Pool == nil {
		return
	}
	answer = p.call(t, "Plain", rig.Order{Reply: several}.Text())
	require.EqualValues(t, codes.FailedPrecondition, answer.Code)
	require.Contains(t, answer.Message, "repeated bytes gdrpc_attachments = 536870000;")
	answer = p.call(t, "Declared", rig.Order{Reply: large}.Text())
	require.EqualValues(t, codes.ResourceExhausted, answer.Code)
	require.Contains(t, answer.Message, "Config.InlineLimit")
	p.call(t, "Declared", "").requireBytes(t, nil)
}

// TestServers: gdrpc clients call a stock server of another language.
func TestServers(t *testing.T) {
	for name, command := range languages {
		for _, kind := range []rig.ClientKind{rig.GdrpcClient, rig.ForeignClient, rig.PlainClient} {
			t.Run(name+"/"+kind.String(), func(t *testing.T) {
				server := start(t, command(t), "server")
				addr, err := server.out.ReadString('\n')
				require.NoError(t, err)
				testServer(t, rig.Dial(t, kind, strings.TrimSpace(addr), rig.ClientConfig{}), name)
			})
		}
	}
}

func testServer(t *testing.T, c *rig.Client, name string) {
	ctx := rig.Context(t)
	r, err := c.Do(ctx, rig.Call{})
	require.NoError(t, err)
	require.Equal(t, name, r.Seen.Server)
	if r.Stats != nil {
		require.Equal(t, "plain", r.Stats.Mode.String())
		require.Contains(t, r.Stats.Reason, "the answer is an HTTP/2 SETTINGS frame: not a gdrpc peer")
	}
	require.NoError(t, c.Right(ctx, rig.Call{Request: several, Order: rig.Order{Bounce: true}}))

	_, err = c.Do(ctx, rig.Call{Undeclared: true, Request: several})
	require.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)
	_, err = c.Do(ctx, rig.Call{Request: large})
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	require.NoError(t, chat(ctx, c))
}

// chat runs a stream in both directions.
func chat(ctx context.Context, c *rig.Client) error {
	s, err := testpb.NewEchoClient(c).Chat(ctx)
	if err != nil {
		return err
	}
	for _, text := range []string{"one", "two"} {
		if err := s.Send(&testpb.PlainMessage{Text: text}); err != nil {
			return err
		}
		m, err := s.Recv()
		if err != nil {
			return err
		}
		if m.GetText() != text {
			return status.Errorf(codes.DataLoss, "%q came back as %q", text, m.GetText())
		}
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	_, err = s.Recv()
	return wantEOF(err)
}

func wantEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("the stream does not end: %v", err)
}
