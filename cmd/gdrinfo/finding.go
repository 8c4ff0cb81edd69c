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
	} else if i := strings.LastIndex(f.Why, "; "); i >= 0 {
		f.Why, f.Remedy = f.Why[:i], f.Why[i+2:] // the errors of this module put the remedy last
	}
	return f
}

// longest is as much of a reason as fits a line for people.
const longest = 150

// String is the finding on one line.
func (f finding) String() string {
	s := string(f.State)
	if f.Why != "" {
		s += ": " + short(f.Why)
	}
	if f.Remedy != "" {
		s += "; remedy: " + f.Remedy
	}
	return s
}

// short cuts a reason that is too long, such as a list of all the places where a
// library was looked for, between two clauses or else two words.
func short(why string) string {
	if len(why) <= longest {
		return why
	}
	head := why[:longest]
	if i := strings.LastIndex(head, "; "); i > 0 {
		head = head[:i]
	} else if i := strings.LastIndex(head, " "); i > 0 {
		head = head[:i]
	}
	head = strings.ToValidUTF8(head, "") + "; ... all of it by -json"
	return head + strings.Repeat(")", max(strings.Count(head, "(")-strings.Count(head, ")"), 0))
}
