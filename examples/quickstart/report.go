package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/gdrpc/gdrpc/conn"
)

// result is what the rounds showed. Every round's bytes were verified.
type result struct {
	File                   string
	Bytes, StockBytes      int64 // each way
	Sum                    []byte
	Path, Provider, Device string
	Rounds                 int
	Times, StockTimes      []time.Duration
}

// summary is the object that -json prints.
type summary struct {
	Path      string  `json:"path"`
	Provider  string  `json:"provider"`
	Device    string  `json:"device"`
	Bytes     int64   `json:"bytes"`
	SHA256OK  bool    `json:"sha256_ok"`
	GdrpcGBps float64 `json:"gdrpc_gbps"` // 10^9 payload bytes a second, both ways added up
	StockGBps float64 `json:"stock_gbps"`
	Ratio     float64 `json:"ratio"`
}

func (r *result) summary() summary {
	s := summary{
		Path: r.Path, Provider: r.Provider, Device: r.Device, Bytes: r.Bytes,
		SHA256OK:  true, // or verify would have ended the run
		GdrpcGBps: gbps(r.Bytes, median(r.Times)), StockGBps: gbps(r.StockBytes, median(r.StockTimes)),
	}
	if s.StockGBps > 0 {
		s.Ratio = s.GdrpcGBps / s.StockGBps
	}
	return s
}

// gbps is the rate of n bytes there and n bytes back.
func gbps(n int64, took time.Duration) float64 { return 2 * float64(n) / took.Seconds() / 1e9 }

func median(d []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// roundsFor is how many rounds are timed.
func roundsFor(size int64, asked int) int {
	switch {
	case asked > 0:
		return asked
	case size <= 64<<20:
		return 10
	case size <= 256<<20:
		return 5
	case size <= 1<<30:
		return 3
	}
	return 1
}

func report(w io.Writer, r *result, asJSON bool) error {
	s := r.summary()
	if asJSON {
		return json.NewEncoder(w).Encode(s)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(tw, "file\t%s, %d bytes\n", r.File, r.Bytes)
	fmt.Fprintf(tw, "sha256\t%x, the same on both sides and in what came back\n", r.Sum)
	fmt.Fprintf(tw, "landed\ton %s by path %s, provider %s\n", r.Device, r.Path, r.Provider)
	if r.Path == conn.PathIPC.String() {
		fmt.Fprintln(tw, "\tipc is memory that two processes of one host share: no network is in it. -path soft goes over TCP")
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(tw, "\ndevice to device and back\tbytes each way\ttime\tGB/s\tratio")
	fmt.Fprintf(tw, "gdrpc attachment\t%d\t%v\t%.2f\t%.2f\n", r.Bytes, round(median(r.Times)), s.GdrpcGBps, s.Ratio)
	fmt.Fprintf(tw, "stock gRPC bytes\t%d\t%v\t%.2f\t1\n", r.StockBytes, round(median(r.StockTimes)), s.StockGBps)
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nTimes are medians; timed rounds, in turn, after a warm-up: %d. The server's hashing is not in them.\n", r.Rounds)
	fmt.Fprintln(w, "GB/s are 10^9 payload bytes per second, both ways added up.")
	if r.StockBytes < r.Bytes {
		fmt.Fprintf(w, "Stock gRPC carried the first %d bytes only.\n", r.StockBytes)
	}
	return nil
}

// round cuts a duration to about four digits.
func round(d time.Duration) time.Duration {
	unit := time.Nanosecond
	for unit*10000 < d {
		unit *= 10
	}
	return d.Round(unit)
}
