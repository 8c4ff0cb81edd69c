package rig

import (
	"context"
	"errors"
	"io"

	"github.com/gdrpc/gdrpc/internal/testpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	streampb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// streams is gRPC's own interoperability service, as far as streams and an
// empty call go.
type streams struct {
	streampb.UnimplementedTestServiceServer
}

// EmptyCall implements TestServiceServer.
func (streams) EmptyCall(context.Context, *streampb.Empty) (*streampb.Empty, error) {
	return &streampb.Empty{}, nil
}

// StreamingOutputCall sends bodies of the sizes that are asked for.
func (streams) StreamingOutputCall(r *streampb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[streampb.StreamingOutputCallResponse]) error {
	return respond(r, s.Send)
}

// StreamingInputCall answers with the number of bytes that came.
func (streams) StreamingInputCall(s grpc.ClientStreamingServer[streampb.StreamingInputCallRequest, streampb.StreamingInputCallResponse]) error {
	var n int32
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.SendAndClose(&streampb.StreamingInputCallResponse{AggregatedPayloadSize: n})
		}
		if err != nil {
			return err
		}
		n += int32(len(m.GetPayload().GetBody()))
	}
}

// FullDuplexCall answers each message with bodies of the sizes that it asks
// for, and ends with the status that it asks for.
func (streams) FullDuplexCall(s grpc.BidiStreamingServer[streampb.StreamingOutputCallRequest, streampb.StreamingOutputCallResponse]) error {
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if st := m.GetResponseStatus(); st != nil {
			return status.Error(codes.Code(st.GetCode()), st.GetMessage())
		}
		if err := respond(m, s.Send); err != nil {
			return err
		}
	}
}

// respond sends a body of every size that is asked for: the request's own bytes
// if it has that many, else a payload whose seed is its place.
func respond(r *streampb.StreamingOutputCallRequest, send func(*streampb.StreamingOutputCallResponse) error) error {
	for i, p := range r.GetResponseParameters() {
		body := r.GetPayload().GetBody()
		if len(body) != int(p.GetSize()) {
			body = Payload{Size: int64(p.GetSize()), Seed: uint64(i)}.Bytes()
		}
		if err := send(&streampb.StreamingOutputCallResponse{Payload: &streampb.Payload{Body: body}}); err != nil {
			return err
		}
	}
	return nil
}

// chat sends back what comes.
type chat struct{ testpb.UnimplementedEchoServer }

// Chat implements testpb.EchoServer.
func (chat) Chat(s grpc.BidiStreamingServer[testpb.PlainMessage, testpb.PlainMessage]) error {
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(&testpb.PlainMessage{Text: m.GetText()}); err != nil {
			return err
		}
	}
}
