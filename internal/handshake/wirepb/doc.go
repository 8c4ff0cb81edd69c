// Package wirepb holds the bodies of the handshake messages, generated from
// handshake.proto.
package wirepb

// protoc 3.21 or later and protoc-gen-go v1.36.12 are needed:
// go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12

//go:generate protoc --go_out=. --go_opt=paths=source_relative handshake.proto
