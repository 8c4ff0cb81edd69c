// Package route chooses the port and the GID by which a queue pair reaches a
// peer. It is pure: what exists comes in as values, and nothing is opened or
// asked.
//
// Choose picks this side's port for a connection, by the local address of the
// TCP connection that stands already and, on the answering side, by the peer's
// port. To makes the address handle with which a queue pair goes to RTR.
//
// The order of preference for GIDs on Ethernet: RoCE v2 before v1, with a
// network interface before without, routable before link-local, the address of
// the TCP connection, one in its subnet, one of its IP version, then the lowest
// index. On InfiniBand packets carry a GID only where the LID does not lead to
// the peer: in another subnet, or with no LID.
package route
