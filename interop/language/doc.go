// Package language holds the suites with stock gRPC of other languages as
// clients and as servers. It has tests only, which need python3-grpcio, and
// @grpc/grpc-js in the folder node.
package language
