package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gdrpc/gdrpc/interop/rxe/internal/plan"
)

// hostOnly are the requirements of tests that the guest never meets. Tests that
// skip for them there run on the host.
var hostOnly = []string{"cc", "verbs-headers", "python", "node"}

// The lines of a test binary that runs with -test.v.
var (
	running = regexp.MustCompile(`^=== \S+\s+(\S+)`)
	missing = regexp.MustCompile(`^\s+\S+\.go:\d+: ([\w-]+) is missing: `)
	ended   = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+)`)
)

// report collects what steps did. One goroutine uses it.
type report struct {
	out     io.Writer
	steps   []*step
	results map[string]*result // by the step's name
}

// result is what became of a step.
type result struct {
	step   *step
	end    *plan.End
	passed int
	failed []string          // names of tests
	skips  []string          // names of tests, but for those of hostOnly
	test   string            // the one that runs
	needs  map[string]string // what tests said that is missing
	value  float64           // the step's figure, once it is there
	lines  []string          // held back, of a step with a figure
}

func newReport(out io.Writer, steps []*step) *report {
	r := &report{out: out, steps: steps, results: make(map[string]*result)}
	for _, s := range steps {
		r.results[s.name] = &result{step: s, needs: make(map[string]string)}
	}
	return r
}

// handle takes one event of the guest.
func (r *report) handle(e plan.Event) {
	switch {
	case e.Up != nil && e.Up.Error == "":
		fmt.Fprintln(r.out, "rxe:", e.Up.Device)
	case e.Line != nil:
		if got := r.results[e.Line.Step]; got != nil && got.line(e.Line.Text) {
			fmt.Fprintf(r.out, "[%s] %s\n", e.Line.Step, e.Line.Text)
		}
	case e.End != nil:
		if got := r.results[e.End.Step]; got != nil {
			got.end = e.End
			r.ended(got)
		}
	}
}

// ended says how a step ended.
func (r *report) ended(got *result) {
	name, verdict := got.step.name, got.verdict()
	if verdict != ok {
		for _, text := range got.lines {
			fmt.Fprintf(r.out, "[%s] %s\n", name, text)
		}
	} else if f := got.step.figure; f != nil {
		verdict = fmt.Sprintf("%.1f %s", got.value, f.unit)
	}
	fmt.Fprintf(r.out, "[%s] %s after %v\n", name, verdict, got.end.Took.Round(10*time.Millisecond))
}

// line takes a line of output and says whether it is worth showing.
func (r *result) line(text string) bool {
	if f := r.step.figure; f != nil {
		f.find(text, &r.value)
		r.lines = append(r.lines, text)
		return false
	}
	if !r.step.tests {
		return true
	}
	if m := running.FindStringSubmatch(text); m != nil {
		r.test = m[1]
		return false
	}
	if m := missing.FindStringSubmatch(text); m != nil {
		r.needs[r.test] = m[1]
	}
	if m := ended.FindStringSubmatch(text); m != nil {
		r.count(m[1], m[2])
	}
	return true
}

// count takes the outcome of a test.
func (r *result) count(outcome, test string) {
	switch {
	case outcome == "PASS":
		r.passed++
	case outcome == "FAIL":
		r.failed = append(r.failed, test)
	case !slices.Contains(hostOnly, r.needs[test]):
		r.skips = append(r.skips, test)
	}
}

// ok is the verdict of a step that succeeded.
const ok = "ok"

// verdict is ok, or what is wrong.
func (r *result) verdict() string {
	if r.end == nil {
		return "MISSING: it did not run to its end"
	}
	if r.end.Error != "" {
		return "FAILED: " + r.end.Error
	}
	if r.step.figure != nil && r.value == 0 {
		return "FAILED: no figure in its output"
	}
	if !r.step.tests {
		return ok
	}
	if len(r.failed) > 0 {
		return "FAILED: " + strings.Join(r.failed, ", ")
	}
	for _, name := range r.skips {
		if !slices.Contains(r.step.mayskip, name) {
			return "FAILED: skipped " + name
		}
	}
	if r.passed == 0 && r.step.figure == nil {
		return "FAILED: no test ran"
	}
	return ok
}

// good reports whether every step succeeded.
func (r *report) good() bool {
	return !slices.ContainsFunc(r.steps, func(s *step) bool { return r.results[s.name].verdict() != ok })
}

// summary writes the table of steps.
func (r *report) summary() {
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nstep\ttime\tpassed\tskipped\tresult")
	for _, s := range r.steps {
		got := r.results[s.name]
		took := "-"
		if got.end != nil {
			took = got.end.Took.Round(100 * time.Millisecond).String()
		}
		tests, skips := "", ""
		if s.tests && s.figure == nil {
			tests, skips = fmt.Sprint(got.passed), fmt.Sprint(len(got.skips))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", s.name, took, tests, skips, got.verdict())
	}
	w.Flush()
}
