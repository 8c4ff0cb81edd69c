package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/cmd/gdrperf/perfpb"
	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
)

// Many landings of all sizes, by calls and streams, over ipc and soft: device
// memory must afterwards be what it was.

const (
	soakMost    = 4 << 20 // bytes of the largest
	soakWorkers = 8       // half of them streams, half over ipc
	soakWarmUp  = 400     // landings before the first look: drivers keep what they load
)

// soakLook is the device memory that both processes hold at one moment, bytes.
type soakLook struct {
	Free         int64 `json:"free"`          // by the driver, of all processes
	ClientPool   int64 `json:"client_pool"`   // taken from the device
	ServerPool   int64 `json:"server_pool"`   // likewise
	ClientSlices int64 `json:"client_slices"` // of the pool, in use
	ServerSlices int64 `json:"server_slices"` // likewise
}

// gone is the device memory that neither the driver has nor a pool.
func (l soakLook) gone(before soakLook) int64 {
	return before.Free + before.ClientPool + before.ServerPool - l.Free - l.ClientPool - l.ServerPool
}

type soakResult struct {
	Device   string           `json:"device"`
	Landings int              `json:"landings"`
	ByPath   map[string]int64 `json:"by_path"`
	Took     time.Duration    `json:"took_nanos"`
	Before   soakLook         `json:"before"`
	After    soakLook         `json:"after"`
	Lost     int64            `json:"lost_bytes"` // of device memory
	Met      bool             `json:"met"`
}

func measureSoak(ctx context.Context, o options) (res *soakResult, err error) {
	err = withServer(ctx, o.staging, func(to addresses) error {
		c, err := newClient(ctx, to, o.staging.Device)
		if err != nil {
			return err
		}
		defer c.close()
		s := &soak{client: c, most: max(soakMost/o.shrink, 4<<10)}
		if err := s.prepare(ctx); err != nil {
			return err
		}
		res = &soakResult{Device: c.mem.device.Device().Name(), Landings: o.soak}
		if err := s.run(ctx, min(soakWarmUp, o.soak)); err != nil {
			return err
		}
		s.ipc.Store(0)
		s.soft.Store(0)
		s.inline.Store(0)
		if res.Before, err = s.look(ctx); err != nil {
			return err
		}
		start := time.Now()
		if err := s.run(ctx, o.soak); err != nil {
			return err
		}
		res.Took = time.Since(start)
		if res.After, err = s.look(ctx); err != nil {
			return err
		}
		res.ByPath = map[string]int64{"ipc": s.ipc.Load(), "soft": s.soft.Load(), "inline": s.inline.Load()}
		res.Lost = res.After.gone(res.Before)
		res.Met = res.Lost == 0 && res.After.ClientSlices == res.Before.ClientSlices && res.After.ServerSlices == res.Before.ServerSlices
		return nil
	})
	return res, err
}

// soak sends parts of one slice, each from a place of its own.
type soak struct {
	client    *client
	most      int64
	src       *gpubuf.Slice
	byPath    [2]perfpb.PerfClient // ipc, soft
	ipc, soft atomic.Int64
	inline    atomic.Int64
}

func (s *soak) prepare(ctx context.Context) (err error) {
	if s.src, err = s.client.fill(ctx, s.client.mem.device, 2*s.most); err != nil {
		return err
	}
	for i, path := range []conn.Path{conn.PathIPC, conn.PathSoft} {
		if s.byPath[i], err = s.client.dialGPU(ctx, path, 2); err != nil {
			return err
		}
	}
	return nil
}

// run makes n landings.
func (s *soak) run(ctx context.Context, n int) error {
	var begun atomic.Int64
	return atOnce(soakWorkers, func(i int) error {
		dice := rand.New(rand.NewPCG(1, uint64(i)))
		client := s.byPath[i%2]
		land := s.calls(ctx, client)
		if i%4 >= 2 {
			var end func() error
			var err error
			if land, end, err = s.stream(ctx, client); err != nil {
				return err
			}
			defer end()
		}
		for begun.Add(1) <= int64(n) {
			path, err := s.one(dice, land)
			if err != nil {
				return err
			}
			s.count(path)
		}
		return nil
	})
}

// one sends a part whose size is as likely to have few digits as many, most
// often above what goes inside the message.
func (s *soak) one(dice *rand.Rand, land func(*gpubuf.Slice) (string, error)) (string, error) {
	least := 1.0
	if dice.IntN(4) > 0 {
		least = min(float64(s.most), 17<<10)
	}
	size := min(int64(least*math.Exp(dice.Float64()*math.Log(float64(s.most+1)/least))), s.most)
	part, err := s.src.Sub(dice.Int64N(s.src.Len()-size), size)
	if err != nil {
		return "", err
	}
	defer part.Free()
	return land(part)
}

func (s *soak) count(path string) {
	switch path {
	case "ipc":
		s.ipc.Add(1)
	case "soft":
		s.soft.Add(1)
	default:
		s.inline.Add(1)
	}
}

func (s *soak) calls(ctx context.Context, client perfpb.PerfClient) func(*gpubuf.Slice) (string, error) {
	return func(part *gpubuf.Slice) (string, error) {
		reply, err := client.Land(gdrpc.NewOutgoingContext(ctx, part), &perfpb.Empty{})
		return reply.GetPath(), err
	}
}

func (s *soak) stream(ctx context.Context, client perfpb.PerfClient) (func(*gpubuf.Slice) (string, error), func() error, error) {
	stream, err := client.Flow(ctx)
	if err != nil {
		return nil, nil, err
	}
	land := func(part *gpubuf.Slice) (string, error) {
		sent, err := gdrpc.Send(stream, &perfpb.Empty{}, part)
		if err != nil {
			return "", err
		}
		reply, err := stream.Recv()
		if err == nil {
			<-sent.Done()
		}
		return reply.GetPath(), err
	}
	end := func() error {
		err := stream.CloseSend()
		for err == nil { // the server ends it
			_, err = stream.Recv()
		}
		return err
	}
	return land, end, nil
}

// look waits until nothing changes any more, which is soon: what a call has
// landed is freed when its handler ends, and peers hear of it later.
func (s *soak) look(ctx context.Context) (soakLook, error) {
	var last soakLook
	for same, tries := 0, 0; same < 5; tries++ {
		now, err := s.once(ctx)
		if err != nil {
			return now, err
		}
		if same++; now != last {
			last, same = now, 0
		}
		if tries > 1000 {
			return now, errors.New("soak: the use of device memory does not become quiet; is another process using the GPU?")
		}
		time.Sleep(10 * time.Millisecond) // between looks, not for them
	}
	return last, nil
}

func (s *soak) once(ctx context.Context) (l soakLook, err error) {
	server, err := s.client.stock.GetUsage(ctx, &perfpb.UsageRequest{})
	if err != nil {
		return l, err
	}
	st := s.client.mem.device.Stats()
	l = soakLook{ClientPool: st.Reserved, ClientSlices: st.Used, ServerPool: server.GetPoolBytes(), ServerSlices: server.GetUsedBytes()}
	l.Free, err = freeMemory(s.client.mem.device)
	if s.client.mem.device.Device().Kind() != gpubuf.KindCUDA {
		l.Free += server.GetFreeBytes() // each process has a device of its own
	}
	return l, err
}

func (p *printer) soak(r *soakResult) {
	p.line("\n| device memory, %d landings on %s in %v | before | after |\n|---|--:|--:|", r.Landings, r.Device, r.Took.Round(time.Millisecond))
	for _, x := range []struct {
		what          string
		before, after int64
	}{
		{"free, by the driver", r.Before.Free, r.After.Free},
		{"pool of the client", r.Before.ClientPool, r.After.ClientPool},
		{"pool of the server", r.Before.ServerPool, r.After.ServerPool},
		{"slices of the client", r.Before.ClientSlices, r.After.ClientSlices},
		{"slices of the server", r.Before.ServerSlices, r.After.ServerSlices},
	} {
		p.line("| %s | %d B | %d B |", x.what, x.before, x.after)
	}
	p.line("\nLost: %d bytes (0, %s). By path: %s.", r.Lost, outcome(r.Met), fmt.Sprint(r.ByPath))
}
