package rig

import (
	"encoding/json"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Order is what a call asks of the echo service. It travels as JSON in the
// request's text, so that peers of every language read it.
type Order struct {
	Reply []Payload `json:"reply,omitempty"` // the attachments of the reply
	// Bounce replies with the attachments of the request in place of Reply.
	Bounce bool `json:"bounce,omitempty"`
	// Hold names a gate of the service at which the handler waits.
	Hold string `json:"hold,omitempty"`
}

// Text is the order as a request's text.
func (o Order) Text() string { return text(o) }

// Seen is what a handler saw of a call. It travels in the reply's text.
type Seen struct {
	Server string   `json:"server"`           // the service's name
	Sums   []string `json:"sums"`             // of the request's attachments
	Paths  []string `json:"paths,omitempty"`  // how each came; FieldPath at a stock server
	Mode   string   `json:"mode,omitempty"`   // of the server's Conn, if it is one of ours
	Reason string   `json:"reason,omitempty"` // why it has no better one
}

// FieldPath is the path of an attachment that a stock handler finds in its
// message.
const FieldPath = "field"

// text is JSON that cannot fail.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return string(b)
}

// parse reads an order or a report. No text is a zero one.
func parse[T any](s string) (v T, err error) {
	if s == "" {
		return v, nil
	}
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		return v, status.Errorf(codes.InvalidArgument, "rig: text %.100q: %v", s, err)
	}
	return v, nil
}
