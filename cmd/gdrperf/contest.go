package main

import (
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
	target target
	path   string            // by which bytes moved, once known
	run    func(n int) error // does n operations, one after the other

	times []time.Duration // of one operation, by sample
}

// measure runs a warm-up round and then rounds that count. settle is called
// before each sample.
func measure(contests []*contest, rounds int, settle func() error) error {
	for round := -1; round < rounds; round++ {
		for _, c := range contests {
			if err := c.round(round, settle); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	return nil
}

// round takes the samples of one round. Who is first changes from sample to
// sample. Round -1 warms up.
func (c *contest) round(round int, settle func() error) error {
	for sample := range c.samples {
		for i := range c.subjects {
			s := c.subjects[(i+sample+round+1)%len(c.subjects)]
			if err := settle(); err != nil {
				return err
			}
			start := time.Now()
			if err := s.run(c.ops); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if took := time.Since(start); round >= 0 {
				s.times = append(s.times, took/time.Duration(c.ops))
			}
		}
	}
	return nil
}

func (c *contest) subject(name string) *subject {
	for _, s := range c.subjects {
		if s.name == name {
			return s
		}
	}
	return nil
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
