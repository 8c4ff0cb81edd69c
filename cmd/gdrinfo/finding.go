package main

import (
	"errors"
	"strings"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// state is the outcome of a probe.
type state string

// The outcomes. Unknown is one that depends on something which is missing.
const (
	yes     state = "yes"
	no      state = "no"
	unknown state = "unknown"
)

// finding is the outcome of a probe, why it is so, and what can be done about it.
type finding struct {
	State  state  `json:"state"`
	Why    string `json:"why"`
	Remedy string `json:"remedy"`
}

// refused makes the finding of an error.
func refused(err error) finding {
	f := finding{State: no, Why: err.Error()}
	var e *ibverbs.Error
	if errors.As(err, &e) && e.Remedy != "" {
		f.Why, f.Remedy = strings.TrimSuffix(f.Why, "; "+e.Remedy), e.Remedy
	} else if why, remedy, ok := strings.Cut(f.Why, "; "); ok {
		f.Why, f.Remedy = why, remedy // the errors of this module put the remedy last
	}
	return f
}

// String is the finding on one line.
func (f finding) String() string {
	s := string(f.State)
	if f.Why != "" {
		s += ": " + f.Why
	}
	if f.Remedy != "" {
		s += "; remedy: " + f.Remedy
	}
	return s
}
