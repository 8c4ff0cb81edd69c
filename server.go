package gdrpc

import (
	"net"

	"google.golang.org/grpc"
)

// Server is a grpc.Server whose handlers send and receive attachments.
// Generated RegisterXServer functions take it as they are. Serve it on a
// listener.Listener, or on any other: attachments then travel inside messages,
// within the limits that doc.go states for connections without a gdrpc
// handshake.
//
// Services registered on the inner grpc.Server directly work without
// attachments, with the proto codec only.
type Server struct {
	*grpc.Server
	ep *endpoint
}

var _ grpc.ServiceRegistrar = (*Server)(nil)

// NewServer makes a server. Among opts may be an Option of gdrpc's. Not
// possible are grpc.StreamInterceptor (use grpc.ChainStreamInterceptor; grpc
// panics) and grpc.ForceServerCodec (it has no effect). What is wrong with the
// configuration, Serve tells.
func NewServer(opts ...grpc.ServerOption) *Server {
	var own []Option
	for _, o := range opts {
		if o, ok := o.(Option); ok {
			own = append(own, o)
		}
	}
	ep := newServerEndpoint(own)
	all := append(opts[:len(opts):len(opts)], ep.serverOptions()...)
	return &Server{Server: grpc.NewServer(all...), ep: ep}
}

// RegisterService implements grpc.ServiceRegistrar.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	Register(s.Server).RegisterService(desc, impl)
}

// Serve is grpc.Server's. It fails at once if the configuration cannot be used.
func (s *Server) Serve(lis net.Listener) error {
	if s.ep.err != nil {
		lis.Close()
		return s.ep.err
	}
	return s.Server.Serve(lis)
}

// Stop is grpc.Server's. Replies that have not been landed are withdrawn.
func (s *Server) Stop() {
	s.Server.Stop()
	s.close()
}

// GracefulStop is grpc.Server's, and waits until replies have been landed or
// their leases have ended.
func (s *Server) GracefulStop() {
	s.Server.GracefulStop()
	s.ep.leases.wait()
	s.close()
}

func (s *Server) close() {
	s.ep.leases.close()
	if err := s.ep.closePool(); err != nil {
		s.ep.log().Warn("gdrpc: Server.Stop: the server's own pool stays open", "cause", err)
	}
}

// ServerOptions returns the options that make a grpc.Server understand
// attachments, for a program that must make the grpc.Server itself. Services
// are then registered through Register. They may not be given twice, nor
// together with grpc.StreamInterceptor or grpc.ForceServerCodec. Replies that
// have not been landed when such a server stops stay until their leases end.
func ServerOptions(opts ...Option) []grpc.ServerOption {
	return newServerEndpoint(opts).serverOptions()
}

func newServerEndpoint(opts []Option) *endpoint {
	ep := newEndpoint(opts)
	ep.side = serverSide
	return ep
}

func (ep *endpoint) serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(serverCodec{ep}),
		grpc.StreamInterceptor(ep.streamInterceptor),
	}
}
