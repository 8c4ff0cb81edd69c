package gdrpc

import (
	"fmt"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/gpubuf"
	"google.golang.org/grpc"
)

// Config configures one side of the gRPC layer. The zero value of a field means
// its default. A Config is not changed after it was passed on.
type Config struct {
	// Pool is where attachments land that the user gave no slice for. Its
	// owner closes it, after the ClientConn or Server. Default: a pool of
	// an emulated GPU, made at first need, which Server.Stop closes and
	// which otherwise lives as long as the process.
	Pool *gpubuf.Pool

	// InlineLimit is the most bytes of attachments that one message may
	// carry inside it, where they cannot travel beside the stream. Default
	// 4 MiB less 64 KiB, because a peer receives messages of up to 4 MiB
	// unless its MaxRecvMsgSize says otherwise. Negative: none.
	InlineLimit int64

	// MaxAttachmentSize is the size in bytes of the largest attachment, in
	// either direction. Default 64 GiB.
	MaxAttachmentSize int64

	// MaxAttachments is the most attachments of one message, in either
	// direction. Default 1024.
	MaxAttachments int

	// StreamWindow is the most attachments of one stream, in the direction
	// of this side's messages, that the peer has neither landed nor given
	// up. Send waits for room. A message that has more goes alone. Those
	// inside messages do not count: HTTP/2 bounds them. Default 1024,
	// negative: no bound.
	StreamWindow int

	// ReplyLease is how long a server keeps attachments of replies, and what
	// a stream's handler leaves over when it returns, for a client that has
	// not landed them. One that is landing, at a 128th in this time or more,
	// is kept until it has landed. Default 30 s.
	ReplyLease time.Duration

	// Require, if set, is the worst path by which attachments may come to
	// this side; one that comes by a worse one fails its RPC. What this side
	// sends is held to it only in that it must not go inside the message: the
	// receiver chooses the path, so set Require there too. Attachments of up
	// to 16 KiB may take any path. With the default Dialer a dial fails that
	// cannot have the path, and every call with it; it has no RDMA devices, so that
	// gdr wants another one. That is told by its own conn.Config.Require. Default:
	// any path.
	Require conn.Path

	// Dialer makes the connections of a client. Its owner closes it. Default:
	// one with all defaults but for Require, which clients share and which lives
	// as long as the process. Servers ignore it.
	Dialer *dialer.Dialer
}

// Option configures DialOptions, ServerOptions or NewServer. As a
// grpc.ServerOption it stands in NewServer's list among grpc's own.
type Option struct {
	grpc.EmptyServerOption
	config Config
}

// WithConfig sets the whole configuration. The last one given counts.
func WithConfig(c Config) Option { return Option{config: c} }

const (
	// smallAttachment is the size up to which an attachment rides inside
	// the message: a round trip on the lanes costs more.
	smallAttachment = 16 << 10

	defaultInlineLimit       = 4<<20 - 64<<10
	defaultMaxAttachmentSize = 64 << 30
	defaultMaxAttachments    = 1024
	defaultStreamWindow      = 1024
	defaultReplyLease        = 30 * time.Second
)

// configOf returns the configuration that opts make, defaults filled in.
func configOf(opts []Option) Config {
	var c Config
	for _, o := range opts {
		c = o.config
	}
	setDefault(&c.InlineLimit, defaultInlineLimit)
	setDefault(&c.MaxAttachmentSize, defaultMaxAttachmentSize)
	setDefault(&c.MaxAttachments, defaultMaxAttachments)
	setDefault(&c.StreamWindow, defaultStreamWindow)
	setDefault(&c.ReplyLease, defaultReplyLease)
	c.InlineLimit = max(c.InlineLimit, 0)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate says what cannot work.
func (c *Config) validate() error {
	switch {
	case c.MaxAttachmentSize < 0:
		return fmt.Errorf("gdrpc: Config.MaxAttachmentSize %d: want a positive number of bytes", c.MaxAttachmentSize)
	case c.MaxAttachments < 0:
		return fmt.Errorf("gdrpc: Config.MaxAttachments %d: want a positive number", c.MaxAttachments)
	case c.ReplyLease < 0:
		return fmt.Errorf("gdrpc: Config.ReplyLease %v: want a positive duration; a reply's memory is always bounded", c.ReplyLease)
	case c.Require > conn.PathGDR:
		return fmt.Errorf("gdrpc: Config.Require %d: no such path", c.Require)
	}
	return nil
}
