package gdrpc

import (
	"sync/atomic"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// clientCodec is the codec of one call. It wraps the one that the call would
// have had.
type clientCodec struct{ call *clientCall }

var _ encoding.CodecV2 = clientCodec{}

// Name keeps the content type what it would have been.
func (c clientCodec) Name() string { return c.call.codec.subtype }

// Marshal implements encoding.CodecV2.
func (c clientCodec) Marshal(msg any) (mem.BufferSlice, error) {
	call := c.call
	if len(call.slices) == 0 {
		return call.codec.codec.Marshal(msg)
	}
	if err := call.enter(); err != nil {
		return nil, err
	}
	r := call.route()
	data, offers, err := call.client.marshal(call.Context, msg, call.codec.codec, call.slices, r)
	if err != nil {
		call.notMade(err)
	} else if err = call.made(r, offers); err != nil {
		data.Free()
		data = nil
	}
	return data, call.leave(err)
}

// Unmarshal implements encoding.CodecV2.
func (c clientCodec) Unmarshal(data mem.BufferSlice, msg any) error {
	call := c.call
	in, err := call.client.decode(data, msg, call.codec.codec)
	if in == nil && err == nil {
		return nil
	}
	if e := call.enter(); e != nil {
		in.end()
		return e
	}
	if err == nil {
		err = call.received(in)
	}
	return call.leave(err)
}

// enter starts the coding of a message with attachments.
func (c *clientCall) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended:
		return errEnded()
	case c.coding:
		c.err = errConcurrent()
		return c.err
	}
	c.coding, c.err = true, nil
	return nil
}

// leave ends it. Errors of ours, whose code grpc would change, are kept for the
// caller.
func (c *clientCall) leave(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.coding = false
	if isOurs(err) {
		c.err = err
	}
	return err
}

// received keeps the attachments of the reply, in place of those of an earlier
// one.
func (c *clientCall) received(in *incoming) error {
	in.reply = true
	c.mu.Lock()
	old, at := c.in, c.last.conn
	if c.ended {
		old, at = in, nil // nobody takes it any more
	} else {
		c.in = in
	}
	c.mu.Unlock()
	if old != nil {
		old.discard(nil)
		old.end()
	}
	return in.bind(at)
}

// discard gives up attachments that nobody wants, and counts them.
func (in *incoming) discard(count *atomic.Uint64) {
	if in == nil {
		return
	}
	in.releaseOffers()
	if count != nil {
		count.Add(uint64(len(in.list)))
	}
}
