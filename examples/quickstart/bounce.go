package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/conn"
	pb "github.com/gdrpc/gdrpc/examples/quickstart/quickstartpb"
	"github.com/gdrpc/gdrpc/gpubuf"
)

// bounce sends the file as an attachment and gets it back, and returns the time
// that took less the server's hashing.
func (c *client) bounce(ctx context.Context, name string, res *result) (time.Duration, error) {
	var p peer.Peer
	var back gdrpc.Reply
	start := time.Now()
	reply, err := c.gdrpc.Bounce(gdrpc.NewOutgoingContext(ctx, c.file), &pb.BounceRequest{Name: name},
		gdrpc.ReplyAttachments(&back), grpc.Peer(&p))
	if err != nil {
		return 0, fmt.Errorf("gdrpc: %w", err)
	}
	defer back.Free()
	took := time.Since(start) - time.Duration(reply.GetHashNanos())
	if len(back.Slices) != 1 {
		return 0, fmt.Errorf("gdrpc: %d reply attachments, want 1", len(back.Slices))
	}
	res.Path, res.Device, res.Provider = reply.GetPath(), reply.GetDevice(), "none"
	if a, ok := p.LocalAddr.(*conn.Addr); ok {
		res.Provider = a.Conn().Stats().Provider
	}
	return took, verify("gdrpc", back.Slices[0], reply.GetSha256(), c.sum)
}

// verify checks the server's digest and the bytes that came back.
func verify(transport string, back *gpubuf.Slice, serverSum, sum []byte) error {
	got, err := digest(back)
	if err != nil {
		return err
	}
	if !bytes.Equal(serverSum, sum) || !bytes.Equal(got, sum) {
		return fmt.Errorf("%s: SHA-256 differs: sent %x, server saw %x, returned %x", transport, sum, serverSum, got)
	}
	return nil
}
