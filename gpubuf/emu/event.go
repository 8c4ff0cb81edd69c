package emu

import "sync"

// Event is a gpubuf.Event that the program fires: the emulated GPU runs no
// kernels of its own.
type Event struct {
	once sync.Once
	done chan struct{}
	err  error // written before done is closed
}

// NewEvent makes an event that has not fired.
func NewEvent() *Event { return &Event{done: make(chan struct{})} }

// Fire ends the event, with an error if the work before it failed. Later calls
// do nothing.
func (e *Event) Fire(err error) {
	e.once.Do(func() {
		e.err = err
		close(e.done)
	})
}

// Done implements gpubuf.Event.
func (e *Event) Done() <-chan struct{} { return e.done }

// Err implements gpubuf.Event.
func (e *Event) Err() error {
	select {
	case <-e.done:
		return e.err
	default:
		return nil
	}
}
