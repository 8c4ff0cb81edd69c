package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	fetch  bool
	bench  bool
	race   bool
	rounds int
	accel  string
	kernel string
	run    *regexp.Regexp
	pkg    string
	args   []string
	limit  time.Duration
	soak   time.Duration
	memory int
}

func main() {
	opt, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rxe:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := execute(ctx, opt); err != nil {
		fmt.Fprintln(os.Stderr, "rxe:", err)
		os.Exit(1)
	}
}

func parse(argv []string) (opt options, err error) {
	fs := flag.NewFlagSet("rxe", flag.ContinueOnError)
	fs.BoolVar(&opt.fetch, "fetch", false, "download the kernel package into the user's cache, and end")
	fs.BoolVar(&opt.bench, "bench", false, "measure beside the programs of perftest and librdmacm, in place of the suites")
	fs.BoolVar(&opt.race, "race", false, "build the tests with the race detector")
	fs.IntVar(&opt.rounds, "rounds", 5, "with -bench: how often each figure is taken, in turn with the others")
	fs.StringVar(&opt.accel, "accel", "auto", "how QEMU runs the machine: auto, kvm, tcg (software emulation)")
	fs.StringVar(&opt.kernel, "kernel", "", "`root` of a file system with the kernel to boot, as in /boot and /lib/modules; default: Debian's package")
	fs.Func("run", "only steps whose name matches `regexp`", func(s string) (err error) {
		opt.run, err = regexp.Compile(s)
		return err
	})
	fs.StringVar(&opt.pkg, "test", "", "instead of the list of steps the tests of this `package` (its folder); what follows -- goes to the test binary")
	fs.DurationVar(&opt.limit, "limit", 15*time.Minute, "of the whole run")
	fs.DurationVar(&opt.soak, "soak", 5*time.Second, "how long the step full/gdr keeps all windows full")
	fs.IntVar(&opt.memory, "memory", 3072, "of the machine, in `MiB`")
	if err := fs.Parse(argv); err != nil {
		return opt, err
	}
	if opt.args = fs.Args(); len(opt.args) > 0 && opt.pkg == "" {
		return opt, fmt.Errorf("arguments %q without -test", opt.args)
	}
	return opt, nil
}

// steps is what opt asks for.
func (opt options) steps() ([]*step, error) {
	if opt.pkg != "" {
		pkg := strings.Trim(strings.TrimPrefix(opt.pkg, "./"), "/")
		s := &step{name: pkg, pkg: pkg, tests: true, args: opt.args, limit: opt.limit}
		for _, known := range suites(opt.soak) {
			if known.pkg == pkg && known.tests {
				s.mayskip = known.mayskip
			}
		}
		return []*step{s}, nil
	}
	all := suites(opt.soak)
	if opt.bench {
		all = benchmarks(opt.rounds)
	}
	var list []*step
	for _, s := range all {
		if opt.run == nil || opt.run.MatchString(s.name) {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no step matches %v", opt.run)
	}
	return list, nil
}

func execute(ctx context.Context, opt options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, opt.limit, fmt.Errorf("the run is not over after %v", opt.limit))
	defer cancel()
	scratch, err := os.MkdirTemp("", "gdrpc-rxe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	steps, err := opt.steps()
	if err != nil {
		return err
	}
	if !opt.fetch {
		if err := installed(steps); err != nil {
			return err
		}
	}
	k, err := openKernel(opt.kernel, scratch)
	if err != nil || opt.fetch {
		return err
	}
	init, err := compile(ctx, scratch, steps, opt.race)
	if err != nil {
		return err
	}
	m := machine{kernel: k.image, image: filepath.Join(scratch, "image"), log: filepath.Join(scratch, "kernel.log"), cpus: 2, memory: opt.memory}
	if err := writeImage(m.image, build{init: init, steps: steps, modules: k.modules}); err != nil {
		return err
	}
	return runSteps(ctx, opt, m, steps)
}

// runSteps boots the machine and judges what it did.
func runSteps(ctx context.Context, opt options, m machine, steps []*step) error {
	start := time.Now()
	r := newReport(os.Stdout, steps)
	var err error
	switch opt.accel {
	case "auto":
		err = m.bootFast(ctx, r.handle)
	default:
		err = m.boot(ctx, opt.accel, upEmulated, r.handle)
	}
	if opt.bench {
		r.figures()
	}
	if good := r.good(); !good || !opt.bench {
		r.summary()
		if !good && err == nil {
			err = errors.New("not every step succeeded")
		}
	}
	fmt.Printf("rxe: %v in the machine and around it\n", time.Since(start).Round(100*time.Millisecond))
	if err != nil {
		fmt.Printf("rxe: the end of the kernel's log:\n%s\n", kernelLog(m.log, 60))
	}
	return err
}
