package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/interop/rxe/internal/plan"
	"github.com/stretchr/testify/require"
)

func TestVerdict(t *testing.T) {
	ended := &plan.End{Step: "s", Took: time.Second}
	tests := []struct {
		name  string
		step  step
		lines []string
		end   *plan.End
		want  string
	}{
		{name: "program", end: ended, want: ok},
		{name: "program failed", end: &plan.End{Step: "s", Error: "exit status 3"}, want: "FAILED: exit status 3"},
		{name: "never ended", step: step{tests: true}, lines: []string{"--- PASS: TestA (0.00s)"}, want: "MISSING: it did not run to its end"},
		{name: "tests", step: step{tests: true}, lines: []string{"=== RUN   TestA", "--- PASS: TestA (0.00s)", "PASS"}, end: ended, want: ok},
		{name: "no tests", step: step{tests: true}, lines: []string{"testing: warning: no tests to run", "PASS"}, end: ended, want: "FAILED: no test ran"},
		{name: "failed test of a binary that exits 0", step: step{tests: true}, lines: []string{"    --- FAIL: TestA/x (0.00s)"}, end: ended, want: "FAILED: TestA/x"},
		{
			name: "skipped", step: step{tests: true}, end: ended, want: "FAILED: skipped TestB/deep",
			lines: []string{"--- PASS: TestA (0.00s)", "    --- SKIP: TestB/deep (0.00s)"},
		},
		{
			name: "may be skipped", step: step{tests: true, mayskip: []string{"TestB/deep"}}, end: ended, want: ok,
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
