package gdrpc

import (
	"context"

	"google.golang.org/grpc"
)

// Register returns what services of s are registered on so that their
// handlers send and receive attachments:
//
//	s := grpc.NewServer(gdrpc.ServerOptions()...)
//	pb.RegisterModelServer(gdrpc.Register(s), impl)
//
// The server must have been made with ServerOptions; else every unary call of
// such a service fails with Internal, "message is *gdrpc.envelope". A *Server
// needs no Register.
func Register(s *grpc.Server) grpc.ServiceRegistrar { return registrar{s} }

// registrar wraps the unary handlers of the services that it registers. It is a
// grpc.Server otherwise, so that reflection finds the services.
type registrar struct{ *grpc.Server }

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	wrapped := *desc
	wrapped.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		wrapped.Methods[i] = grpc.MethodDesc{MethodName: m.MethodName, Handler: wrapUnary(m.Handler)}
	}
	r.Server.RegisterService(&wrapped, impl)
}

// wrapUnary makes a handler of generated code receive its request, and send its
// reply, in an envelope. Interceptors run inside it and see raw messages.
func wrapUnary(inner grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		call := newServerCall(ctx)
		defer call.end()
		reply, err := inner(srv, call, call.decoder(dec), interceptor)
		if err != nil {
			return nil, err
		}
		return call.reply(reply)
	}
}
