package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	streampb "google.golang.org/grpc/interop/grpc_testing"
)

// TestStreams has stock streams of every kind over every pair.
func TestStreams(t *testing.T) {
	each(t, func(t *testing.T, s *rig.Server, client rig.ClientKind) {
		c := rig.Dial(t, client, s.Addr, rig.ClientConfig{})
		ctx := rig.Context(t)
		require.NoError(t, serverStream(ctx, c, 20, 100_000))
		require.NoError(t, clientStream(ctx, c, 20, 100_000))
		require.NoError(t, fullDuplex(ctx, c, 20, 100_000))
		require.NoError(t, fullDuplex(ctx, c, 3, 1<<20))
		requireStatusOfStream(t, c)
		requireCancel(t, c)
	})
}

// serverStream receives n messages of the size.
func serverStream(ctx context.Context, c *rig.Client, n int, size int32) error {
	r := &streampb.StreamingOutputCallRequest{}
	for i := range n {
		r.ResponseParameters = append(r.ResponseParameters, &streampb.ResponseParameters{Size: size + int32(i)})
	}
	s, err := streampb.NewTestServiceClient(c).StreamingOutputCall(ctx, r)
	if err != nil {
		return err
	}
	for i := range n {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		if want := (rig.Payload{Size: int64(size) + int64(i), Seed: uint64(i)}); rig.Sum(m.GetPayload().GetBody()) != want.Sum() {
			return fmt.Errorf("message %d differs", i)
		}
	}
	return wantEOF(s.Recv())
}

// clientStream sends n messages of the size.
func clientStream(ctx context.Context, c *rig.Client, n, size int) error {
	s, err := streampb.NewTestServiceClient(c).StreamingInputCall(ctx)
	if err != nil {
		return err
	}
	for range n {
		m := &streampb.StreamingInputCallRequest{Payload: &streampb.Payload{Body: make([]byte, size)}}
		if err := s.Send(m); err != nil {
			return err
		}
	}
	r, err := s.CloseAndRecv()
	if err == nil && int(r.GetAggregatedPayloadSize()) != n*size {
		err = fmt.Errorf("the server got %d bytes of %d", r.GetAggregatedPayloadSize(), n*size)
	}
	return err
}

// fullDuplex sends n messages of the size, and receives each back, with both
// directions running at the same time.
func fullDuplex(ctx context.Context, c *rig.Client, n int, size int32) error {
	s, err := streampb.NewTestServiceClient(c).FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		defer s.CloseSend()
		sent <- repeat(n, func(i int) error {
			return s.Send(&streampb.StreamingOutputCallRequest{
				Payload:            &streampb.Payload{Body: rig.Payload{Size: int64(size), Seed: uint64(i)}.Bytes()},
				ResponseParameters: []*streampb.ResponseParameters{{Size: size}},
			})
		})
	}()
	err = repeat(n, func(i int) error {
		m, err := s.Recv()
		if err == nil && rig.Sum(m.GetPayload().GetBody()) != (rig.Payload{Size: int64(size), Seed: uint64(i)}).Sum() {
			err = fmt.Errorf("message %d differs", i)
		}
		return err
	})
	if err == nil {
		err = wantEOF(s.Recv())
	}
	return errors.Join(err, <-sent)
}

func wantEOF(_ any, err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("the stream does not end: %v", err)
}

// requireStatusOfStream: a status goes through as it is.
func requireStatusOfStream(t *testing.T, c *rig.Client) {
	t.Helper()
	s, err := streampb.NewTestServiceClient(c).FullDuplexCall(rig.Context(t))
	require.NoError(t, err)
	require.NoError(t, s.Send(&streampb.StreamingOutputCallRequest{
		ResponseStatus: &streampb.EchoStatus{Code: int32(codes.DataLoss), Message: "as asked"},
	}))
	_, err = s.Recv()
	requireStatus(t, err, codes.DataLoss, "as asked")
}

// requireCancel: a stream that is cancelled in the middle ends, and the
// connection serves the next one.
func requireCancel(t *testing.T, c *rig.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(rig.Context(t))
	s, err := streampb.NewTestServiceClient(c).FullDuplexCall(ctx)
	require.NoError(t, err)
	m := &streampb.StreamingOutputCallRequest{ResponseParameters: []*streampb.ResponseParameters{{Size: 1 << 20}}}
	for range 8 { // more than the windows hold, of which one is received
		require.NoError(t, s.Send(m))
	}
	_, err = s.Recv()
	require.NoError(t, err)
	cancel()
	for err == nil {
		_, err = s.Recv()
	}
	requireStatus(t, err, codes.Canceled)
	require.NoError(t, fullDuplex(rig.Context(t), c, 2, 1000))
}
