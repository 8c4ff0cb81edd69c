package main

import "fmt"

// target is a bound on a ratio; the zero target is none.
type target struct {
	bound float64
	least bool // the bound is a minimum
}

func atLeast(bound float64) target { return target{bound: bound, least: true} }
func atMost(bound float64) target  { return target{bound: bound} }

func (t target) met(ratio float64) bool {
	switch {
	case t.bound == 0:
		return true
	case t.least:
		return ratio >= t.bound
	}
	return ratio <= t.bound
}

// verdict is the bound and whether the ratio keeps it, for people.
func (t target) verdict(ratio float64) string {
	if t.bound == 0 {
		return ""
	}
	sign := "≤"
	if t.least {
		sign = "≥"
	}
	return fmt.Sprintf("%s %.2f, %s", sign, t.bound, outcome(t.met(ratio)))
}

func outcome(met bool) string {
	if met {
		return "met"
	}
	return "missed"
}
