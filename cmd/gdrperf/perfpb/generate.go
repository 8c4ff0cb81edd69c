// Package perfpb is the service that gdrperf measures.
package perfpb

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative perf.proto
