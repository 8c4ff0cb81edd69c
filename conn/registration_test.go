package conn

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft"
	"github.com/stretchr/testify/require"
)

// TestDeregister: a Domain and the memory that it has registered end at the same
// time, in either order: the protection domain is freed after all MRs, and memory
// after its own.
func TestDeregister(t *testing.T) {
	for name, domainFirst := range map[string]bool{"the memory first": false, "the Domain first": true} {
		bubble(t, name, func(t *testing.T) {
			g := &gatedDevice{Device: soft.NewDevice(nil), gate: make(chan struct{})}
			cfg := quiet()
			cfg.Device = g
			d, err := NewDomain(cfg)
			require.NoError(t, err)
			freed := make(chan struct{}, 2)
			pool, err := gpubuf.NewPool(gpubuf.Config{Device: tellingDevice{host.New(), freed}})
			require.NoError(t, err)
			s, err := pool.Alloc(context.Background(), 1000)
			require.NoError(t, err)
			_, err = d.soft.regions.lookup(s.Region())
			require.NoError(t, err)
			s.Free()
			w := newHostWrapper(t, wrapUnit)
			w.cfg.Tenure = gpubuf.NewTenure()
			w.use(t, &d.soft.regions, 0, 1000)

			ends := []func() error{pool.Close, func() error { w.cfg.Tenure.End(); return nil }, d.Close}
			if domainFirst {
				ends[0], ends[2] = ends[2], ends[0]
			}
			results := make(chan error, len(ends))
			for _, end := range ends {
				go func() { results <- end() }()
				synctest.Wait() // it deregisters, or waits for who does
			}
			require.Empty(t, results)
			require.Empty(t, freed, "memory that is registered")
			close(g.gate)
			for range ends {
				require.NoError(t, <-results)
			}
			require.Len(t, freed, 1)
		})
	}
}

// gatedDevice is a device whose MRs are deregistered once the gate is open.
type gatedDevice struct {
	ibverbs.Device
	gate chan struct{}
}

// Open implements ibverbs.Device.
func (d *gatedDevice) Open() (ibverbs.Context, error) {
	ctx, err := d.Device.Open()
	return gatedContext{ctx, d.gate}, err
}

type gatedContext struct {
	ibverbs.Context
	gate chan struct{}
}

// AllocPD implements ibverbs.Context.
func (c gatedContext) AllocPD() (ibverbs.PD, error) {
	pd, err := c.Context.AllocPD()
	return gatedPD{pd, c.gate}, err
}

type gatedPD struct {
	ibverbs.PD
	gate chan struct{}
}

// RegMR implements ibverbs.PD.
func (p gatedPD) RegMR(mem []byte, access ibverbs.Access) (ibverbs.MR, error) {
	mr, err := p.PD.RegMR(mem, access)
	return gatedMR{mr, p.gate}, err
}

type gatedMR struct {
	ibverbs.MR
	gate chan struct{}
}

// Dereg implements ibverbs.MR.
func (m gatedMR) Dereg() error {
	<-m.gate
	return m.MR.Dereg()
}

// tellingDevice is host memory that tells when it is freed.
type tellingDevice struct {
	*host.Device
	freed chan struct{}
}

// Alloc implements gpubuf.Device.
func (d tellingDevice) Alloc(size int64) (gpubuf.Memory, error) {
	m, err := d.Device.Alloc(size)
	return tellingMemory{m, d.freed}, err
}

type tellingMemory struct {
	gpubuf.Memory
	freed chan struct{}
}

// Free implements gpubuf.Memory.
func (m tellingMemory) Free() error {
	m.freed <- struct{}{}
	return m.Memory.Free()
}
