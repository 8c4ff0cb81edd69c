// Package quickstartpb is the service of the quickstart example.
package quickstartpb

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative quickstart.proto
