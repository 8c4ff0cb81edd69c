package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// contest is a job that several subjects do in turn.
type contest struct {
	name     string
	bytes    int64 // moved by one operation; 0 if that is not the point
	ops      int   // operations in one sample
	samples  int   // samples of each subject in one round
	subjects []*subject
}

// subject is one way to do a contest's job.
type subject struct {
	name   string
	target target            // against the base
	stock  target            // against the subject "stock"
	over   time.Duration     // the most that it may take beyond the subject "empty call"; 0: any
	still  bool              // it moves no bytes
	ops    int               // in one sample, if not the contest's
	path   string            // by which bytes moved, once known
	run    func(n int) error // does n operations, one after the other

	times []time.Duration // of one operation, by sample
}

// measure runs rounds that count, after others that warm up. Nothing collects
// garbage in between: stock gRPC lives from a heap that it has grown before.
func (c *contest) measure(warmUps, rounds int) error {
	for round := range warmUps + rounds {
		if err := c.round(round, round >= warmUps); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// round takes the samples of one round.
func (c *contest) round(round int, counts bool) error {
	for sample := range c.samples {
		for _, s := range c.order(round*c.samples + sample) {
			start := time.Now()
			ops := cmp.Or(s.ops, c.ops)
			if err := s.run(ops); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if took := time.Since(start); counts {
				s.times = append(s.times, took/time.Duration(ops))
			}
		}
	}
	return nil
}

// order is the order of the subjects in the nth turn. Over as many turns as there
// are subjects, or twice as many if their number is odd, each comes after each
// other one equally often (Williams, "Experimental designs balanced for the
// estimation of residual effects of treatments", 1949): what one leaves behind
// (garbage, cold caches) slows all the others alike.
func (c *contest) order(n int) []*subject {
	count := len(c.subjects)
	order := make([]*subject, count)
	for i := range order {
		at := (i + 1) / 2 // 0, 1, -1, 2, -2 and so on
		if i%2 == 0 {
			at = count - at
		}
		order[i] = c.subjects[(at+count-n%count)%count]
	}
	if count%2 == 1 && n/count%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

func (c *contest) subject(name string) *subject {
	for _, s := range c.subjects {
		if s.name == name {
			return s
		}
	}
	return nil
}

// excess is the median of what a takes longer than b, sample by sample.
func excess(a, b *subject) time.Duration {
	d := make([]time.Duration, len(a.times))
	for i := range d {
		d[i] = a.times[i] - b.times[i]
	}
	return median(d)
}

// ratio is the median of the ratios of two subjects' times, sample by sample.
func ratio(a, b *subject) float64 {
	r := make([]float64, len(a.times))
	for i := range r {
		r[i] = a.times[i].Seconds() / b.times[i].Seconds()
	}
	return median(r)
}

func median[T time.Duration | float64](values []T) T {
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
