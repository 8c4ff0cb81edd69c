// Package conn is the connection: a net.Conn whose byte stream runs over verbs
// queue pairs or TCP, with lanes beside the stream on which attachments move
// from the sender's memory into the receiver's.
//
// # Lanes
//
// The stream lane carries the net.Conn's bytes. The control lane carries small
// frames, the eager lane small payloads ahead of their message, and the bulk
// lanes payloads, which the receiver asks for with Request
// frames after it has posted receives that point into the destination. Each
// lane has its own receives and its own credits, so none waits behind another.
// docs/architecture.md tells why, docs/wire.md has every byte.
//
// # Usage
//
// A Domain holds what many Conns share: the verbs devices, memory
// registrations, staging blocks, limits. Config.NICs are the RDMA devices that
// connections run on where both sides have some; the software device is always
// there beside them. dialer and listener make Conns; the
// gdrpc package moves attachments. On the sending side an Offer is added to
// each Conn on which the peer may ask for it. On the receiving side Conn.Land
// moves an offered attachment into a slice.
//
// # Concurrency
//
// All methods of all types may be called from any goroutine.
package conn
