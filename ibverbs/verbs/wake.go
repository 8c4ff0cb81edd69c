package verbs

import (
	"os"
	"slices"
	"sync"
	"time"
)

// EventTime implements ibverbs.EventTimer. Events wake goroutines by descriptors,
// and that costs the same on all devices of a machine.
func (d *Device) EventTime() time.Duration { return wakeTime() }

var wakeTime = sync.OnceValue(measureWake)

const (
	wakeRounds = 9
	// wakeGap lets the goroutine, and the processor that it ran on, go to sleep.
	wakeGap = 300 * time.Microsecond
)

// measureWake writes to a pipe on which another goroutine waits, and returns the
// median of the times until that one runs; 0 if there is no pipe.
func measureWake() time.Duration {
	r, w, err := os.Pipe()
	if err != nil {
		return 0
	}
	defer r.Close()
	woken := make(chan time.Time)
	go func() {
		defer close(woken)
		for b := make([]byte, 1); ; {
			if n, _ := r.Read(b); n == 0 {
				return
			}
			woken <- time.Now()
		}
	}()
	var all []time.Duration
	for range wakeRounds {
		time.Sleep(wakeGap)
		start := time.Now()
		if _, err := w.Write([]byte{0}); err != nil {
			break
		}
		all = append(all, (<-woken).Sub(start))
	}
	w.Close()
	<-woken // the goroutine has ended
	if len(all) < wakeRounds {
		return 0
	}
	slices.Sort(all)
	return max(all[wakeRounds/2], time.Nanosecond)
}
