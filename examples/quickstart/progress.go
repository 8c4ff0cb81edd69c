package main

import (
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress is a bar on standard error, or nothing: a nil progress does nothing.
type progress struct{ bar *progressbar.ProgressBar }

// newProgress shows a bar for total bytes if people are looking.
func newProgress(total int64, quiet bool) *progress {
	if quiet || total == 0 || !term.IsTerminal(int(os.Stdout.Fd())) || !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	return &progress{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetDescription("sending"),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionClearOnFinish())}
}

func (p *progress) add(n int64) {
	if p != nil {
		p.bar.Add64(n)
	}
}

func (p *progress) done() {
	if p != nil {
		p.bar.Finish()
	}
}
