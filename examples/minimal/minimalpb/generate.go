// Package minimalpb is the service of the minimal example.
package minimalpb

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative minimal.proto
