package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/cmd/gdrperf/perfpb"
	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/gpubuf"
)

// gpuJob is attachments from the GPU memory of one process to that of another.
type gpuJob struct {
	size   int64
	path   conn.Path // required; PathNone: whatever there is
	flight int       // calls under way at a time
	ops    int
	target target        // of base
	over   time.Duration // the most that it may take beyond an empty call
	stock  bool          // stock gRPC takes part
	to     string        // the server's device, if it is not the client's
}

const (
	bareCopy  = "bare copy"  // inside the client's process
	emptyCall = "empty call" // on the same Conn
)

var gpuJobs = []gpuJob{
	{size: 64 << 20, path: conn.PathIPC, flight: 1, ops: 16, over: 60 * time.Microsecond, stock: true},
	{size: 256 << 20, path: conn.PathIPC, flight: 8, ops: 64, target: atLeast(0.9)},
	{size: 4 << 10, flight: 1, ops: 200, over: 30 * time.Microsecond, stock: true},
}

// measureGPU makes the contests of the part gpu.
func measureGPU(ctx context.Context, o options, res *results) error {
	for _, job := range gpuJobs {
		if job.path != conn.PathNone && o.path != conn.PathNone && job.path != o.path {
			continue
		}
		job.path = cmp.Or(job.path, o.path)
		job.size = max(job.size/o.shrink, 4<<10)
		if job.to = o.staging.To; job.to != "" {
			job.over = 0
		}
		rows, err := measureContest(ctx, o, bareCopy, job.contest)
		if err != nil {
			return err
		}
		res.GPU = append(res.GPU, rows...)
	}
	if o.staging.To != "" {
		return nil // a checksum is made on one
	}
	rows, err := measureContest(ctx, o, bareCopy, func(ctx context.Context, c *client) (*contest, error) {
		return sumContest(ctx, c, 256<<20/o.shrink)
	})
	if errors.Is(err, gpubuf.ErrNotSupported) {
		return nil // the device sums nothing
	}
	res.GPU = append(res.GPU, rows...)
	return err
}

// contest makes the contest on connections of its own.
func (j gpuJob) contest(ctx context.Context, c *client) (*contest, error) {
	src, err := c.fill(ctx, c.mem.device, j.size)
	if err != nil {
		return nil, err
	}
	client, err := c.dialGPU(ctx, j.path, 1)
	if err != nil {
		return nil, err
	}
	base, dst := &subject{name: bareCopy}, c.mem.device
	if j.to != "" {
		if dst, err = devicePool(j.to); err != nil {
			return nil, err
		}
		c.closers = append(c.closers, func() { dst.Close() })
	}
	base.run, err = c.copies(ctx, src, dst)
	if err != nil {
		return nil, err
	}
	landed, err := flightSubject(ctx, client, src, j.flight)
	if err != nil {
		return nil, err
	}
	landed.target, landed.over = j.target, j.over
	empty := &subject{name: emptyCall, still: true, run: func(n int) error { return pings(ctx, client, n) }}
	ct := &contest{name: j.name(c.mem.device.Device(), dst.Device()), bytes: j.size, ops: j.ops, samples: 3, subjects: []*subject{base, empty, landed}}
	if j.stock {
		ct.subjects = append(ct.subjects, &subject{name: "stock", ops: min(j.ops, 2), run: c.putFromDevice(ctx, src)})
	}
	return ct, nil
}

func (j gpuJob) name(from, to gpubuf.Device) string {
	s := fmt.Sprintf("%s, %s to %s", sizeName(j.size), from.Kind(), to.Kind())
	if j.to != "" {
		s = fmt.Sprintf("%s, %s to %s", sizeName(j.size), from.Name(), to.Name())
	}
	if j.flight > 1 {
		s += fmt.Sprintf(", %d calls under way", j.flight)
	}
	return s
}

// dialGPU opens a connection on which attachments go by one path.
func (c *client) dialGPU(ctx context.Context, path conn.Path, joins int) (perfpb.PerfClient, error) {
	return c.dialWith(ctx, c.sharedAddr, c.mem.device, dialer.Config{BulkJoins: joins, Conn: conn.Config{Require: path, NoIPC: path == conn.PathSoft}})
}

func pings(ctx context.Context, client perfpb.PerfClient, n int) error {
	for range n {
		if _, err := client.Ping(ctx, &perfpb.Empty{}); err != nil {
			return err
		}
	}
	return nil
}

// copies copies src into memory of a pool, one after the other.
func (c *client) copies(ctx context.Context, src *gpubuf.Slice, to *gpubuf.Pool) (func(n int) error, error) {
	dst, err := to.Alloc(ctx, src.Len())
	if err != nil {
		return nil, err
	}
	c.closers = append(c.closers, dst.Free)
	return func(n int) error {
		for range n {
			if err := src.CopyTo(dst); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// flightSubject sends src as the attachment of calls, several at a time, which are
// empty otherwise. A first call asks how it goes.
func flightSubject(ctx context.Context, client perfpb.PerfClient, src *gpubuf.Slice, flight int) (*subject, error) {
	reply, err := client.Land(gdrpc.NewOutgoingContext(ctx, src), &perfpb.Empty{})
	if err != nil {
		return nil, err
	}
	takes := func(more func() bool) error {
		for more() {
			if _, err := client.Take(gdrpc.NewOutgoingContext(ctx, src), &perfpb.Empty{}); err != nil {
				return err
			}
		}
		return nil
	}
	run := func(n int) error {
		var begun atomic.Int64
		more := func() bool { return begun.Add(1) <= int64(n) }
		if flight == 1 { // on this goroutine, as empty calls are
			return takes(more)
		}
		return atOnce(flight, func(int) error { return takes(more) })
	}
	return &subject{name: "gdrpc", path: reply.GetPath(), run: run}, nil
}

// atOnce runs f n times at the same time, with 0 to n-1.
func atOnce(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// sumContest is the checksum of memory where it lies, beside a copy of it.
func sumContest(ctx context.Context, c *client, size int64) (*contest, error) {
	src, err := c.fill(ctx, c.mem.device, size)
	if err != nil {
		return nil, err
	}
	if _, err := src.CRC32C(); err != nil { // the first loads the kernel
		return nil, err
	}
	copied, err := c.copies(ctx, src, c.mem.device)
	if err != nil {
		return nil, err
	}
	sum := func(n int) error {
		for range n {
			if _, err := src.CRC32C(); err != nil {
				return err
			}
		}
		return nil
	}
	return &contest{
		name: fmt.Sprintf("%s, %s", sizeName(size), c.mem.device.Device().Kind()), bytes: size, ops: 16, samples: 3,
		subjects: []*subject{{name: bareCopy, run: copied}, {name: "CRC-32C", run: sum, target: atLeast(0.5)}},
	}, nil
}
