package gdrpc

import (
	"fmt"

	"github.com/gdrpc/gdrpc/conn"
	"google.golang.org/grpc/mem"
)

// envelope takes a message through grpc to the server's codec and back.
type envelope struct {
	msg     any        // what grpc would have coded itself
	subtype string     // the content subtype, which chooses the codec
	conn    *conn.Conn // on which a unary call's request comes

	stream *serverStream // whose message it is; nil in a unary call

	ep    *endpoint       // set by the codec
	in    *incoming       // the attachments that came; nil if none did
	err   error           // why the message cannot be used
	ready mem.BufferSlice // a message that is encoded already
}

// String describes the message in grpc's traces.
func (e *envelope) String() string { return fmt.Sprint(e.msg) }
