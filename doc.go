// Package gdrpc lets RPCs of grpc-go carry attachments: bulk payloads that
// travel outside HTTP/2 and protobuf, from the sender's device memory into the
// receiver's. Generated code does not change.
//
// # Usage
//
// A client dials with DialOptions, last among its options:
//
//	cc, err := grpc.NewClient(target, append(own, gdrpc.DialOptions(gdrpc.WithConfig(gdrpc.Config{Pool: pool}))...)...)
//
//	var reply gdrpc.Reply
//	defer reply.Free()
//	out, err := client.Infer(gdrpc.NewOutgoingContext(ctx, tensor), in, gdrpc.ReplyAttachments(&reply))
//	// reply.Slices holds what came back.
//
// A server is made with NewServer and served on a listener of package listener:
//
//	s := gdrpc.NewServer(gdrpc.WithConfig(gdrpc.Config{Pool: pool}))
//	pb.RegisterModelServer(s, model)
//	s.Serve(lis)
//
// Its handlers find the attachments in their context:
//
//	slices, err := gdrpc.FromIncomingContext(ctx).LandAll(ctx)
//	...
//	err = gdrpc.SetReply(ctx, result)
//
// Peers without lanes, and peers that are not gdrpc, are served by the same
// code: attachments then travel inside the messages. A peer that is not gdrpc
// finds and puts them in a field that the message itself must declare:
//
//	repeated bytes gdrpc_attachments = 536870000;
//
// Where it does not, a call with attachments fails with FailedPrecondition.
//
// # Streams
//
// Any message of a stream carries attachments, in both directions. Send and Recv
// take the place of a generated stream's own methods, on clients and servers:
//
//	sent, err := gdrpc.Send(stream, msg, tensor)
//	...
//	msg, attachments, err := gdrpc.Recv(stream)
//	slices, err := attachments.LandAll(ctx)
//	...
//	attachments.Free()
//
// Where a method has one request, or one reply, it goes as in a unary call:
// NewOutgoingContext and FromIncomingContext for the request of a method that
// streams replies, SetReply before SendAndClose and ReplyAttachments for the
// reply of a method that streams requests.
//
// Messages arrive in order, and their attachments are landed in any. A stream is
// not retried once its client has sent attachments.
//
// # Memory of engines
//
// Memory that is not a pool's, such as a tensor of an inference engine, becomes a
// slice without a copy, and goes and comes with the engine's own events:
//
//	m, err := dev.Wrap(pointer, size)
//	tensor, released, err := gpubuf.Wrap(dev, m, nil)
//	src := tensor.After(written) // read once the kernel has written it
//	_, err = client.Infer(gdrpc.NewOutgoingContext(ctx, src), in)
//	dst := tensor.After(read) // written once the last reader is done
//	err = attachment.LandInto(ctx, dst)
//	attachments.FreeAfter(read) // back to the pool when the kernel is done
//	src.Free()                  // each handle on its own: the memory is not
//	dst.Free()                  // released while one is left
//	tensor.Free()
//	<-released.Done() // the engine's again
//
// Memory that Wrap made goes by shared memory only with WrapConfig.Export. A buffer
// that is wrapped for each call is registered with a NIC once if it is a GPU's of
// cuMemAlloc, or under a gpubuf.Tenure.
//
// # TLS
//
// TransportCredentials takes the place of grpc's own credentials where the
// connection itself runs inside TLS (dialer.Config.TLS, listener.Config.TLS), so
// that attachments leave the stream, encrypted; between processes of one host and
// user they go by shared memory, outside TLS, unless conn.Config.NoIPC is set. Under
// grpc's own credentials they stay inside the messages. insecure.NewCredentials over
// a connection inside TLS works too, but hides the peer's certificates from grpc.
//
// # Memory
//
// A client's slices are borrowed until the call returns. The slices of a reply
// are the caller's: Reply.Free gives them up. A call without ReplyAttachments drops
// them unseen. The attachments of a request are
// the RPC's until the handler returns, also if the client cancels before; Ref
// keeps a slice longer. SetReply takes references of its own. Nothing is
// allocated for attachments that no handler lands, except for the inline ones,
// whose bytes are in the message's buffers until the handler returns.
//
// What Recv returns is the receiver's until Attachments.Free; when its handler
// returns a server frees the rest. Send takes references of its own, and holds
// them until Sent.Done: the peer has landed the attachments or given them up, or
// the stream is over. Config.StreamWindow bounds how many a stream has on their
// way. What a handler has sent when it returns can still be landed, for
// Config.ReplyLease. A stream that holds pool memory, of any of its messages,
// does not wait for more, so free one message's before landing the next's.
//
// # Concurrency
//
// All functions and methods may be called from any goroutine. A Reply serves
// one call at a time. On one stream, as in grpc, one goroutine sends and one
// receives at a time.
//
// # Limitations
//
//   - If a client cancels a stream whose handler has returned, attachments that
//     it had not received yet stay with the server for Config.ReplyLease.
//   - A reply that grpc cannot send (grpc.MaxSendMsgSize) keeps its attachments
//     for Config.ReplyLease.
//   - A connection that lost its bulk lane is not given a new one: calls with
//     large attachments fail on it with Unavailable until it is dialled anew.
//   - The codec must be named proto or json; stock peers need proto.
//   - On a ClientConn without DialOptions, one with dialer.DialContext alone among
//     them, NewOutgoingContext and ReplyAttachments are ignored without an error.
//   - A connection that gdrpc's dialer did not make is known to lead to a gdrpc
//     server once a first call has succeeded on it. Calls before that treat the
//     peer as one that is not gdrpc.
//   - Server stats handlers see an internal type as the payload of received
//     messages, and of replies with attachments, with the right sizes.
//     Interceptors see the messages.
//   - Inline attachments count against the receiver's MaxRecvMsgSize, and ones
//     of more than 256 KiB make grpc give up retrying the call.
//   - A unary call with attachments that was given a connection that is over is
//     made again on another, at most five times in all, as long as none of its
//     messages was sent: grpc's retry policies do not see that. A grpc.OnFinish
//     of its own then hears of each. A stream fails with Unavailable.
//   - A unary call is not run again if its last attempt went to a connection on
//     which its attachments cannot be landed: it fails with Unavailable.
package gdrpc
