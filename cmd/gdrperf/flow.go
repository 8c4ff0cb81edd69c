package main

import (
	"context"
	"io"

	"google.golang.org/grpc"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/cmd/gdrperf/perfpb"
	"github.com/gdrpc/gdrpc/gpubuf"
)

// flowSubject sends src as the attachment of messages of one stream, each
// answered before the next.
func flowSubject(ctx context.Context, client perfpb.PerfClient, src *gpubuf.Slice) (*subject, error) {
	stream, err := client.Flow(ctx)
	if err != nil {
		return nil, err
	}
	s := &subject{name: "gdrpc"}
	s.run = func(n int) error {
		for range n {
			if _, err := gdrpc.Send(stream, &perfpb.Empty{}, src); err != nil {
				return err
			}
			reply, err := stream.Recv()
			if err != nil {
				return err
			}
			s.path = reply.GetPath()
		}
		return nil
	}
	return s, nil
}

// pour sends data in a bytes field of messages of one stock stream.
func (c *client) pour(ctx context.Context, data []byte) (func(n int) error, error) {
	stream, err := c.stock.Pour(ctx)
	if err != nil {
		return nil, err
	}
	return func(n int) error {
		for range n {
			if err := stream.Send(&perfpb.PutRequest{Data: data}); err != nil {
				return err
			}
			if _, err := stream.Recv(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// Flow lands each message's attachment and forgets it.
func (s *server) Flow(stream grpc.BidiStreamingServer[perfpb.Empty, perfpb.LandReply]) error {
	for {
		_, in, err := gdrpc.Recv(stream)
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		landed, err := in.LandAll(stream.Context())
		if err != nil {
			return err
		}
		reply := &perfpb.LandReply{Path: in[0].Path().String(), Device: landed[0].Device().Name()}
		in.Free()
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
}

// Pour takes the bytes out of each message.
func (s *server) Pour(stream grpc.BidiStreamingServer[perfpb.PutRequest, perfpb.Empty]) error {
	for {
		if _, err := stream.Recv(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.Send(&perfpb.Empty{}); err != nil {
			return err
		}
	}
}
