package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// results is everything that was measured.
type results struct {
	Machine machine     `json:"machine"`
	Rounds  int         `json:"rounds"`
	Bulk    []row       `json:"bulk,omitempty"`
	IPC     []row       `json:"ipc,omitempty"`
	Staged  []row       `json:"staged,omitempty"`
	Busy    *busyResult `json:"busy,omitempty"`
	Calls   []row       `json:"calls,omitempty"`
	Idle    *idleResult `json:"idle,omitempty"`
}

// row is one subject of a contest.
type row struct {
	Case    string        `json:"case"`
	Subject string        `json:"subject"`
	Path    string        `json:"path,omitempty"`
	Median  time.Duration `json:"median_nanos"`   // of one operation
	GBps    float64       `json:"gbps,omitempty"` // 10^9 payload bytes a second, one way
	// Ratio compares with Base: of speeds where bytes move, else of times.
	Ratio  float64 `json:"ratio"`
	Base   string  `json:"base"`
	Target float64 `json:"target,omitempty"`
	Met    bool    `json:"met"`
	// TimesStock is how many times as fast as stock it is; 0 if there is no
	// such comparison.
	TimesStock float64 `json:"times_stock,omitempty"`

	verdict, stockVerdict string
}

// rows are a contest's outcome, compared with the subject called base.
func (c *contest) rows(base string) []row {
	var rows []row
	for _, s := range c.subjects {
		r := row{Case: c.name, Subject: s.name, Path: s.path, Median: median(s.times), Base: base, Target: s.target.bound}
		if r.Ratio = ratio(s, c.subject(base)); c.bytes > 0 {
			r.Ratio = ratio(c.subject(base), s)
			r.GBps = float64(c.bytes) / r.Median.Seconds() / 1e9
		}
		r.Met, r.verdict = s.target.met(r.Ratio), s.target.verdict(r.Ratio)
		if stock := c.subject("stock"); stock != nil && base != "stock" {
			r.TimesStock = ratio(stock, s)
			r.Met = r.Met && s.stock.met(r.TimesStock)
			r.stockVerdict = s.stock.verdict(r.TimesStock)
		}
		rows = append(rows, r)
	}
	return rows
}

func (r *results) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// writeTables prints Markdown.
func (r *results) writeTables(w io.Writer) error {
	p := &printer{w: w}
	p.line("%s; medians of %d rounds.", r.Machine, r.Rounds)
	if r.Bulk != nil {
		p.bulk(r.Bulk)
	}
	if r.IPC != nil {
		p.bulk(r.IPC)
	}
	if r.Staged != nil {
		p.staged(r.Staged)
	}
	if r.Busy != nil {
		p.busy(r.Busy)
	}
	if r.Calls != nil {
		p.calls(r.Calls)
	}
	if r.Idle != nil {
		p.idle(r.Idle)
	}
	return p.err
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) bulk(rows []row) {
	p.line("\n| one message, client to server | by | time | GB/s | of %s | target | times stock | target |\n|---|---|--:|--:|--:|---|--:|---|", rows[0].Base)
	for _, r := range rows {
		name := r.Subject
		if r.Path != "" {
			name += " (" + r.Path + ")"
		}
		times := ""
		if r.TimesStock > 0 {
			times = fmt.Sprintf("%.2f", r.TimesStock)
		}
		p.line("| %s | %s | %v | %.2f | %.2f | %s | %s | %s |", r.Case, name, short(r.Median), r.GBps, r.Ratio, r.verdict, times, r.stockVerdict)
	}
}

func (p *printer) staged(rows []row) {
	p.line("\n| one message, device to device | by | time | GB/s | of bare pipeline | target |\n|---|---|--:|--:|--:|---|")
	for _, r := range rows {
		p.line("| %s | %s | %v | %.2f | %.2f | %s |", r.Case, r.Subject, short(r.Median), r.GBps, r.Ratio, r.verdict)
	}
}

func (p *printer) calls(rows []row) {
	p.line("\n| %s | time | times stock | target |\n|---|--:|--:|---|", rows[0].Case)
	for _, r := range rows {
		p.line("| %s | %v | %.3f | %s |", r.Subject, short(r.Median), r.Ratio, r.verdict)
	}
}

func (p *printer) idle(res *idleResult) {
	p.line("\n| idle connections | watched | client CPU | server CPU |\n|---|--:|--:|--:|")
	for _, r := range res.CPU {
		p.line("| %s | %v | %v | %v |", r.Conns, r.Watched, short(time.Duration(r.ClientNanos)), short(time.Duration(r.ServerNanos)))
	}
	p.line("\n| one idle connection of %d | side | resident | heap and stacks | device memory | goroutines |\n|---|---|--:|--:|--:|--:|", res.Memory[0].Conns)
	for _, r := range res.Memory {
		p.line("| %s | client | %s | %s | %d B | %d |", r.Kind, kib(r.Client.GetRssBytes()), kib(r.Client.GetHeapBytes()), r.Client.GetDeviceBytes(), r.Client.GetGoroutines())
		p.line("| %s | server | %s | %s | %d B | %d |", r.Kind, kib(r.Server.GetRssBytes()), kib(r.Server.GetHeapBytes()), r.Server.GetDeviceBytes(), r.Server.GetGoroutines())
	}
}

func kib(n int64) string { return fmt.Sprintf("%.1f KiB", float64(n)/1024) }

// short cuts a duration to about three digits.
func short(d time.Duration) time.Duration {
	unit := time.Nanosecond
	for unit*1000 < d {
		unit *= 10
	}
	return d.Round(unit)
}
