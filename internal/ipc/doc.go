// Package ipc is the Unix socket between two processes of one host that have a
// connection with each other: it proves that they are on the same host and of
// the same user, and passes the memory that one may read of the other.
//
// The sockets are of type SOCK_SEQPACKET, so that a message and the descriptor
// that comes with it stay together, and have abstract names, which leave nothing
// in the file system and exist in one network namespace (unix(7)). docs/wire.md
// has the messages. Linux only; elsewhere Listen and Dial fail.
package ipc
