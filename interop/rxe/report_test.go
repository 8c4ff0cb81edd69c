package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/interop/rxe/internal/plan"
	"github.com/stretchr/testify/require"
)

func TestVerdict(t *testing.T) {
	end := &plan.End{Step: "s", Took: time.Second}
	tests := []struct {
		name  string
		step  step
		lines []string
		end   *plan.End
		want  string
	}{
		{name: "program", end: end, want: ok},
		{name: "program failed", end: &plan.End{Step: "s", Error: "exit status 3"}, want: "FAILED: exit status 3"},
		{name: "never ended", step: step{tests: true}, lines: []string{"--- PASS: TestA (0.00s)"}, want: "MISSING: it did not run to its end"},
		{name: "tests", step: step{tests: true}, lines: []string{"=== RUN   TestA", "--- PASS: TestA (0.00s)", "PASS"}, end: end, want: ok},
		{name: "no tests", step: step{tests: true}, lines: []string{"testing: warning: no tests to run", "PASS"}, end: end, want: "FAILED: no test ran"},
		{name: "failed test of a binary that exits 0", step: step{tests: true}, lines: []string{"    --- FAIL: TestA/x (0.00s)"}, end: end, want: "FAILED: TestA/x"},
		{
			name: "skipped", step: step{tests: true}, end: end, want: "FAILED: skipped TestB/deep",
			lines: []string{"--- PASS: TestA (0.00s)", "    --- SKIP: TestB/deep (0.00s)"},
		},
		{
			name: "skipped on the host too, but for another reason", step: step{tests: true}, end: end, want: "FAILED: skipped TestB",
			lines: []string{
				"--- PASS: TestA (0.00s)", "=== RUN   TestB", "=== RUN   TestB/x", "    a_test.go:1: cc is missing: none; install it",
				"=== NAME  TestB", "    a_test.go:2: verbs is missing: none; buy it", "--- SKIP: TestB (0.00s)", "    --- SKIP: TestB/x (0.00s)",
			},
		},
		{
			name: "for the host alone", step: step{tests: true}, end: end, want: ok,
			lines: []string{"--- PASS: TestA (0.00s)", "=== RUN   TestB", "    a_test.go:1: cc is missing: none; install it", "--- SKIP: TestB (0.00s)"},
		},
		{
			name: "may be skipped", step: step{tests: true, mayskip: []string{"TestB/deep"}}, end: end, want: ok,
			lines: []string{"--- PASS: TestA (0.00s)", "    --- SKIP: TestB/deep (0.00s)"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.step.name = "s"
			var out bytes.Buffer
			r := newReport(&out, []*step{&tt.step})
			for _, text := range tt.lines {
				r.handle(plan.Event{Line: &plan.Line{Step: "s", Text: text}})
			}
			if tt.end != nil {
				r.handle(plan.Event{End: tt.end})
			}
			require.Equal(t, tt.want, r.results["s"].verdict())
			require.Equal(t, tt.want == ok, r.good())
			r.summary()
			require.Contains(t, out.String(), tt.want)
		})
	}
}
