package main

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/interop/rxe/internal/plan"
	"github.com/stretchr/testify/require"
)

func TestFigureFind(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		figure     figure
		want       float64
	}{
		{"ib_send_bw", " 65536      500              57.78              38.26  		   0.000612", figure{pattern: sendBW}, 38.26},
		{"its heading", " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]", figure{pattern: sendBW}, 0},
		{"ib_send_lat", " 64      200          13.82          21958.81      14.37    	       50.06       	238.49 		3117.63 		21958.81", figure{pattern: sendLat}, 14.37},
		{"rstream", "custom    64      1       500     62k         0.16s      0.00     163.49", figure{pattern: rstreamLat}, 163.49},
		{"bandwidth", "BenchmarkSend/65536B-2  \t     500\t   5681818 ns/op\t        11.80 MiB/s", figure{pattern: goRate}, 11.8},
		{"latency", "BenchmarkPingPong/events-2  \t    1000\t    240000 ns/op\t       112.1 median-us", figure{pattern: goLat}, 112.1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var v float64
			tt.figure.find(tt.text, &v)
			require.Equal(t, tt.want, v)
		})
	}
}

// TestFigures takes two rounds of a base and another subject.
func TestFigures(t *testing.T) {
	var steps []*step
	values := map[string]string{"b/1": "10", "b/2": "30", "o/1": "30", "o/2": "50"}
	for _, round := range []string{"1", "2"} {
		steps = append(steps,
			&step{name: "b/" + round, figure: &figure{contest: "c", subject: "b", unit: "us", base: true, pattern: goLat}},
			&step{name: "o/" + round, figure: &figure{contest: "c", subject: "o", unit: "us", pattern: goLat}})
	}
	// The base of this one is left out.
	steps = append(steps, &step{name: "alone", figure: &figure{contest: "d", subject: "o", unit: "us", pattern: goLat}})
	values["alone"] = "7"
	var out bytes.Buffer
	r := newReport(&out, steps)
	for _, s := range steps {
		r.handle(plan.Event{Line: &plan.Line{Step: s.name, Text: fmt.Sprintf("Benchmark 1 %s median-us", values[s.name])}})
		r.handle(plan.Event{End: &plan.End{Step: s.name, Took: time.Second}})
	}
	require.Contains(t, out.String(), "[o/2] 50.0 us after 1s")
	out.Reset()
	r.figures()
	require.Regexp(t, `(?m)^c +b +20\.0 +10\.0 +30\.0 +us +1\.00$`, out.String())
	require.Regexp(t, `(?m)^c +o +40\.0 +30\.0 +50\.0 +us +2\.33$`, out.String())
	require.Regexp(t, `(?m)^d +o +7\.0 +7\.0 +7\.0 +us +-$`, out.String())
	require.True(t, r.good())
}

func TestFigureMissing(t *testing.T) {
	s := &step{name: "s", figure: &figure{pattern: goLat, unit: "us"}}
	var out bytes.Buffer
	r := newReport(&out, []*step{s})
	r.handle(plan.Event{Line: &plan.Line{Step: "s", Text: "no number here"}})
	r.handle(plan.Event{End: &plan.End{Step: "s"}})
	require.False(t, r.good())
	require.Contains(t, out.String(), "[s] no number here", "what was held back is shown")
}
