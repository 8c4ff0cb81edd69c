package gpubuf

// Event is a point in a device's work that is reached once: a CUDA event, the
// end of a kernel, a copy of the user's. It has the shape of a context's Done
// and Err. All methods may be called from any goroutine.
type Event interface {
	// Done is closed when the point is reached, or never will be.
	Done() <-chan struct{}
	// Err is nil if the point was reached. It is valid once Done is closed.
	Err() error
}
