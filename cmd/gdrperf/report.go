package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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
	GPU     []row       `json:"gpu,omitempty"`
	Soak    *soakResult `json:"soak,omitempty"`
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
	// Over is what it takes beyond an empty call on the same Conn, and
	// OverTarget the most that it may be; 0 if there is no such target.
	Over       time.Duration `json:"over_nanos,omitempty"`
	OverTarget time.Duration `json:"over_target_nanos,omitempty"`

	verdict, stockVerdict, overVerdict string
}

// rows are a contest's outcome, compared with the subject called base.
func (c *contest) rows(base string) []row {
	var rows []row
	for _, s := range c.subjects {
		r := row{Case: c.name, Subject: s.name, Path: s.path, Median: median(s.times), Base: base, Target: s.target.bound}
		if r.Ratio = ratio(s, c.subject(base)); c.bytes > 0 && !s.still {
			r.Ratio = ratio(c.subject(base), s)
			r.GBps = float64(c.bytes) / r.Median.Seconds() / 1e9
		}
		r.Met, r.verdict = s.target.met(r.Ratio), s.target.verdict(r.Ratio)
		if stock := c.subject("stock"); stock != nil && base != "stock" {
			r.TimesStock = ratio(stock, s)
			r.Met = r.Met && s.stock.met(r.TimesStock)
			r.stockVerdict = s.stock.verdict(r.TimesStock)
		}
		r.exceed(s, c.subject(emptyCall))
		rows = append(rows, r)
	}
	return rows
}

// exceed compares s with an empty call, if there is a target for that.
func (r *row) exceed(s, empty *subject) {
	if empty == nil || s.over == 0 {
		return
	}
	r.Over, r.OverTarget = excess(s, empty), s.over
	met := r.Over <= s.over
	r.Met = r.Met && met
	r.overVerdict = fmt.Sprintf("≤ %v, %s", s.over, outcome(met))
}

// saveTables is writeTables into a file.
func (r *results) saveTables(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(r.writeTables(f), f.Close())
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
	if r.GPU != nil {
		p.gpu(r.GPU)
	}
	if r.Soak != nil {
		p.soak(r.Soak)
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

// gpu prints what moves between GPUs.
func (p *printer) gpu(rows []row) {
	p.line("\n| between GPUs | by | time | GB/s | of %s | target | beyond an empty call | target | times stock |\n|---|---|--:|--:|--:|---|--:|---|--:|", rows[0].Base)
	for _, r := range rows {
		name, rate, of, over, stock := r.Subject, "", "", "", ""
		if r.Path != "" {
			name += " (" + r.Path + ")"
		}
		if r.GBps > 0 {
			rate, of = fmt.Sprintf("%.2f", r.GBps), fmt.Sprintf("%.2f", r.Ratio)
		}
		if r.Over != 0 {
			over = short(r.Over).String()
		}
		if r.TimesStock > 0 && r.GBps > 0 {
			stock = fmt.Sprintf("%.2f", r.TimesStock)
		}
		p.line("| %s | %s | %v | %s | %s | %s | %s | %s | %s |", r.Case, name, short(r.Median), rate, of, r.verdict, over, r.overVerdict, stock)
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
