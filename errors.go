package gdrpc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// rpcError is a gRPC status that keeps its cause for errors.Is and errors.As.
type rpcError struct {
	st    *status.Status
	cause error // nil if there is none
}

// Error returns what grpc's own status errors return.
func (e *rpcError) Error() string { return e.st.String() }

// GRPCStatus makes status.FromError, and grpc, find the status.
func (e *rpcError) GRPCStatus() *status.Status { return e.st }

// Unwrap returns the cause.
func (e *rpcError) Unwrap() error { return e.cause }

// errorf makes the error of one RPC. What %w wraps stays reachable through
// errors.Is and errors.As.
func errorf(code codes.Code, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if !strings.HasPrefix(err.Error(), "gdrpc: ") {
		err = fmt.Errorf("gdrpc: %w", err)
		return &rpcError{st: status.New(code, err.Error()), cause: errors.Unwrap(errors.Unwrap(err))}
	}
	return &rpcError{st: status.New(code, err.Error()), cause: errors.Unwrap(err)}
}

// isOurs reports whether errorf made err, or something that it wraps.
func isOurs(err error) bool {
	if err == nil {
		return false
	}
	var e *rpcError
	return errors.As(err, &e)
}

// codeOf chooses the code under which a failure of lower layers is reported.
func codeOf(err error) codes.Code {
	var known interface{ GRPCStatus() *status.Status }
	switch {
	case errors.As(err, &known):
		return known.GRPCStatus().Code()
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, conn.ErrChecksum):
		return codes.DataLoss
	case errors.Is(err, gpubuf.ErrPoolFull), errors.Is(err, conn.ErrTooManyOffers), errors.Is(err, gpubuf.ErrTooLarge), errors.Is(err, gpubuf.ErrOutOfMemory):
		return codes.ResourceExhausted
	case errors.Is(err, conn.ErrRequire):
		return codes.FailedPrecondition
	case errors.Is(err, gpubuf.ErrFreed), errors.Is(err, gpubuf.ErrInvalidSlice):
		return codes.InvalidArgument
	}
	return codes.Unavailable
}

// unregistered is how the server's codec refuses attachments for a service that
// no registrar of ours has wrapped. The codec cannot choose the status code, so
// the client recognises this text and restores the code.
const unregistered = "gdrpc: attachments for a service that was registered on the inner *grpc.Server; " +
	"register it on the *gdrpc.Server, or through gdrpc.Register"

// restoreCode gives errors of a server that could not choose its code the one
// that they should have.
func restoreCode(err error) error {
	if st, ok := status.FromError(err); ok && st.Code() == codes.Internal && strings.Contains(st.Message(), unregistered) {
		return errorf(codes.FailedPrecondition, "%s", strings.TrimPrefix(unregistered, "gdrpc: "))
	}
	return err
}

// errEnded is what an RPC's attachments answer after its end.
func errEnded() error {
	return errorf(codes.Canceled, "the RPC has ended; its attachments are gone")
}

// errConcurrent reports that one call's state met two messages at a time.
func errConcurrent() error {
	return errorf(codes.Internal, "one call's messages coded concurrently; an interceptor closer to the wire than gdrpc's must not run attempts in parallel (pass DialOptions last)")
}
