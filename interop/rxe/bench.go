package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/gdrpc/gdrpc/interop/rxe/internal/plan"
)

// figure is the one number that a step's output is read for.
type figure struct {
	contest string // figures of one contest stand beside each other
	subject string // who
	unit    string
	base    bool           // what the others of the contest are divided by
	pattern *regexp.Regexp // its first group is the number
}

// find puts the number in text, if there is one, into value.
func (f *figure) find(text string, value *float64) {
	if m := f.pattern.FindStringSubmatch(text); m != nil {
		if v, err := strconv.ParseFloat(m[1], 64); err == nil {
			*value = v
		}
	}
}

// The columns of what other programs print. MB are MiB to perftest. All of
// their latencies are half a round trip.
var (
	sendBW     = regexp.MustCompile(`^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s`)          // BW average
	sendLat    = regexp.MustCompile(`^\s*\d+\s+\d+\s+[\d.]+\s+[\d.]+\s+([\d.]+)\s`) // t_typical, the median
	rstreamLat = regexp.MustCompile(`^custom\s.*\ds\s+[\d.]+\s+([\d.]+)\s*$`)       // usec/xfer, the mean
	goRate     = regexp.MustCompile(`^Benchmark.*\s([\d.]+) MiB/s`)
	goLat      = regexp.MustCompile(`^Benchmark.*\s([\d.]+) median-us`)
)

const (
	mibps     = "MiB/s"
	usec      = "us"
	benchTime = 2 * time.Minute // limit of one step
)

// benchmarks is what `make bench-rxe` runs: each round takes every figure once.
func benchmarks(rounds int) (steps []*step) {
	for round := range rounds {
		for _, s := range benchmarkRound() {
			s.name = fmt.Sprintf("%s/%s/%d", s.figure.contest, s.figure.subject, round+1)
			s.limit = benchTime
			steps = append(steps, s)
		}
	}
	return steps
}

func benchmarkRound() []*step {
	const (
		rate64K, rate1M  = "send 64 KiB", "send 1 MiB"
		rate8M           = "send 8 MiB"
		latPoll, latWait = "64 B polling", "64 B events"
		call             = "empty call, half"
	)
	return []*step{
		perftest(figure{contest: rate64K, subject: "ib_send_bw", unit: mibps, base: true, pattern: sendBW}, "-s", "65536", "-n", "1000"),
		perftest(figure{contest: rate64K, subject: "ib_send_bw -e", unit: mibps, pattern: sendBW}, "-e", "-s", "65536", "-n", "1000"),
		verbs(figure{contest: rate64K, subject: "ibverbs/verbs", unit: mibps, pattern: goRate}, "Send/65536B", 1000),
		entire(figure{contest: rate64K, subject: "stream of a Conn", unit: mibps, pattern: goRate}, "Stream/verbs$/1x65536B", 1000),
		entire(figure{contest: rate64K, subject: "stream of a Conn, 256 KiB a Write", unit: mibps, pattern: goRate}, "Stream/verbs$/4x65536B", 1000),
		entire(figure{contest: rate64K, subject: "stream of a Conn, polling", unit: mibps, pattern: goRate}, "Stream/verbs-polling/1x65536B", 1000),
		perftest(figure{contest: rate1M, subject: "ib_send_bw", unit: mibps, base: true, pattern: sendBW}, "-s", "1048576", "-n", "50"),
		perftest(figure{contest: rate1M, subject: "ib_send_bw -e", unit: mibps, pattern: sendBW}, "-e", "-s", "1048576", "-n", "50"),
		verbs(figure{contest: rate1M, subject: "ibverbs/verbs", unit: mibps, pattern: goRate}, "Send/1048576B", 50),
		entire(figure{contest: rate1M, subject: "landings", unit: mibps, pattern: goRate}, "Landing/1048576B", 50),
		perftest(figure{contest: rate8M, subject: "ib_send_bw", unit: mibps, base: true, pattern: sendBW}, "-s", "8388608", "-n", "10", "-t", "4"),
		perftest(figure{contest: rate8M, subject: "ib_send_bw -e", unit: mibps, pattern: sendBW}, "-e", "-s", "8388608", "-n", "10", "-t", "4"),
		entire(figure{contest: rate8M, subject: "landings", unit: mibps, pattern: goRate}, "Landing/8388608B", 10),
		perftest(figure{contest: latPoll, subject: "ib_send_lat", unit: usec, base: true, pattern: sendLat}, "-s", "64", "-n", "1000"),
		verbs(figure{contest: latPoll, subject: "ibverbs/verbs", unit: usec, pattern: goLat}, "PingPong/polling", 1000),
		rstream(figure{contest: latPoll, subject: "rstream", unit: usec, pattern: rstreamLat}, "-S", "64", "-C", "1", "-I", "500"),
		perftest(figure{contest: latWait, subject: "ib_send_lat -e", unit: usec, base: true, pattern: sendLat}, "-e", "-s", "64", "-n", "1000"),
		verbs(figure{contest: latWait, subject: "ibverbs/verbs", unit: usec, pattern: goLat}, "PingPong/events", 1000),
		entire(figure{contest: latWait, subject: "stream of a Conn", unit: usec, pattern: goLat}, "Stream/verbs$/pingpong", 500),
		entire(figure{contest: latPoll, subject: "stream of a Conn, polling", unit: usec, pattern: goLat}, "Stream/verbs-polling/pingpong", 500),
		entire(figure{contest: call, subject: "stock over TCP", unit: usec, base: true, pattern: goLat}, "Call/stock", 500),
		entire(figure{contest: call, subject: "gdrpc over TCP", unit: usec, pattern: goLat}, "Call/soft", 500),
		entire(figure{contest: call, subject: "gdrpc over verbs", unit: usec, pattern: goLat}, "Call/gdr", 500),
		entire(figure{contest: call, subject: "gdrpc over verbs, polling", unit: usec, pattern: goLat}, "Call/gdr-polling", 500),
	}
}

// perftest is a program of perftest, which the unit of f tells.
func perftest(f figure, args ...string) *step {
	program := "ib_send_lat"
	if f.unit == mibps {
		program = "ib_send_bw"
	}
	server := append([]string{program, "-d", plan.Device, "-x", fmt.Sprint(plan.GIDIndex), "-F"}, args...)
	return &step{args: append(slices.Clone(server), plan.Address), server: server, port: 18515, figure: &f}
}

// verbs is a benchmark of the provider, with n operations.
func verbs(f figure, name string, n int) *step { return goBench(f, "ibverbs/verbs", name, n) }

// entire is a benchmark of connections and calls.
func entire(f figure, name string, n int) *step { return goBench(f, "interop/rdma", name, n) }

func goBench(f figure, pkg, name string, n int) *step {
	args := []string{"-test.run", "^$", "-test.bench", name + "$", "-test.benchtime", fmt.Sprintf("%dx", n)}
	return &step{pkg: pkg, tests: true, args: args, figure: &f}
}

// rstream is librdmacm's stream over verbs, which polls for a while before it
// waits. Messages of more than one packet get stuck on rdma_rxe (Linux 6.1), so
// it has no rate here.
func rstream(f figure, args ...string) *step {
	client := append([]string{"rstream", "-s", plan.Address}, args...)
	return &step{args: client, server: []string{"rstream", "-b", plan.Address}, port: 7471, cm: true, figure: &f}
}

// figures writes the table: medians over the rounds, with the extremes, and the
// medians of the ratios to the base of the same round. The host's own speed may
// change between rounds.
func (r *report) figures() {
	type key struct{ contest, subject string }
	var order []key
	values, units, bases := make(map[key][]float64), make(map[key]string), make(map[string]key)
	for _, s := range r.steps {
		f := s.figure
		k := key{f.contest, f.subject}
		if values[k] == nil {
			order = append(order, k)
		}
		units[k] = f.unit
		if f.base {
			bases[k.contest] = k
		}
		values[k] = append(values[k], r.results[s.name].value)
	}
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\ncontest\tsubject\tmedian\tmin\tmax\tunit\tof the base")
	for _, k := range order {
		v := measured(values[k])
		if len(v) == 0 {
			fmt.Fprintf(w, "%s\t%s\t-\n", k.contest, k.subject)
			continue
		}
		ratio := "-" // its base is not among the steps
		if all := ratios(values[k], values[bases[k.contest]]); len(all) > 0 {
			ratio = fmt.Sprintf("%.2f", median(all))
		}
		fmt.Fprintf(w, "%s\t%s\t%.1f\t%.1f\t%.1f\t%s\t%s\n", k.contest, k.subject, median(v), slices.Min(v), slices.Max(v), units[k], ratio)
	}
	w.Flush()
	fmt.Fprintln(r.out, "perftest and rstream have an end in each of two processes, the others both in one")
}

// measured leaves out the steps that failed: now and then ib_send_bw -e measures 0.
func measured(values []float64) (good []float64) {
	for _, v := range values {
		if v > 0 {
			good = append(good, v)
		}
	}
	return good
}

// ratios divides the figures of each round.
func ratios(values, bases []float64) (all []float64) {
	for i := range min(len(values), len(bases)) {
		if values[i] > 0 && bases[i] > 0 {
			all = append(all, values[i]/bases[i])
		}
	}
	return all
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
