// Package leak counts the objects that must be given back by hand: slices,
// device memory, verbs objects. Counting is off, and costs one atomic load,
// unless a test binary turns it on through leaktest.Main.
package leak

import (
	"fmt"
	"runtime"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
)

// tracker is the one table of live objects. It is process-wide because a leak
// check must see every object, whoever made it.
var tracker struct {
	on   atomic.Bool
	mu   sync.Mutex
	live map[*Object]struct{} // guarded by mu
}

// Object stands for one live object. A nil Object stands for one that is not
// counted.
type Object struct {
	kind  string
	stack [16]uintptr
	depth int
}

// Track notes that an object of the given kind, such as "gpubuf.Slice", was
// made by the caller's caller. Call Done on the result when it is given back.
func Track(kind string) *Object {
	if !tracker.on.Load() {
		return nil
	}
	o := &Object{kind: kind}
	o.depth = runtime.Callers(2, o.stack[:])
	tracker.mu.Lock()
	tracker.live[o] = struct{}{}
	tracker.mu.Unlock()
	return o
}

// Done notes that the object was given back. Further calls do nothing.
func (o *Object) Done() {
	if o == nil {
		return
	}
	tracker.mu.Lock()
	delete(tracker.live, o)
	tracker.mu.Unlock()
}

// Enable turns counting on for the rest of the process.
func Enable() {
	tracker.mu.Lock()
	if tracker.live == nil {
		tracker.live = make(map[*Object]struct{})
	}
	tracker.mu.Unlock()
	tracker.on.Store(true)
}

// Count returns the number of live objects of a kind.
func Count(kind string) int {
	tracker.mu.Lock()
	defer tracker.mu.Unlock()
	n := 0
	for o := range tracker.live {
		if o.kind == kind {
			n++
		}
	}
	return n
}

// Report describes every live object with the stack that made it, sorted, or
// returns nil when there is none.
func Report() []string {
	tracker.mu.Lock()
	defer tracker.mu.Unlock()
	var lines []string
	for o := range tracker.live {
		lines = append(lines, o.String())
	}
	sort.Strings(lines)
	return lines
}

// String returns the kind and the creation stack.
func (o *Object) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s made at", o.kind)
	frames := runtime.CallersFrames(o.stack[:o.depth])
	for {
		f, more := frames.Next()
		fmt.Fprintf(&b, "\n\t%s\n\t\t%s:%d", f.Function, f.File, f.Line)
		if !more {
			return b.String()
		}
	}
}
