package conn

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft"
	"github.com/stretchr/testify/require"
)

// TestDeregister: a Domain and memory that it has registered end at the same time,
// in either order: the protection domain is freed after all MRs, and the memory,
// or its tenure, ends after its own.
func TestDeregister(t *testing.T) {
	for name, register := range map[string]func(*testing.T, *registrations) (end func() error){
		"pool": registerPool, "tenure": registerTenure,
	} {
		for _, domainFirst := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s, Domain first: %v", name, domainFirst), func(t *testing.T) {
				g := &gatedDevice{Device: soft.NewDevice(nil), gate: make(chan struct{})}
				cfg := quiet()
				cfg.Device = g
				d, err := NewDomain(cfg)
				require.NoError(t, err)
				ends := []func() error{register(t, &d.soft.regions), d.Close}
				if domainFirst {
					ends[0], ends[1] = ends[1], ends[0]
				}
				results := make(chan error, len(ends))
				for _, end := range ends {
					go func() { results <- end() }()
					synctest.Wait() // it deregisters, or waits for who does
				}
				require.Empty(t, results)
				close(g.gate)
				for range ends {
					require.NoError(t, <-results)
				}
			})
		}
	}
}

// registerPool registers a region of a pool, which is closed in the end.
func registerPool(t *testing.T, r *registrations) func() error {
	pool, err := gpubuf.NewPool(gpubuf.Config{Device: host.New()})
	require.NoError(t, err)
	s, err := pool.Alloc(context.Background(), 1000)
	require.NoError(t, err)
	_, err = r.lookup(s.Region())
	require.NoError(t, err)
	s.Free()
	return pool.Close
}

// registerTenure registers wrapped memory whose tenure is over in the end.
func registerTenure(t *testing.T, r *registrations) func() error {
	w := newHostWrapper(t, wrapUnit)
	w.cfg.Tenure = gpubuf.NewTenure()
	w.use(t, r, 0, 1000)
	return func() error {
		w.cfg.Tenure.End()
		return nil
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
