package fabric

import (
	"errors"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// end is one queue pair with what it needs.
type end struct {
	ctx ibverbs.Context
	pd  ibverbs.PD
	cq  ibverbs.CQ
	ch  ibverbs.CompChannel
	qp  ibverbs.QP
}

// newEnd makes a queue pair of d in state INIT.
func newEnd(t *testing.T, d *Device) *end {
	t.Helper()
	e := new(end)
	var err error
	e.ctx, err = d.Open()
	require.NoError(t, err)
	e.pd, err = e.ctx.AllocPD()
	require.NoError(t, err)
	e.ch, err = e.ctx.CreateCompChannel()
	require.NoError(t, err)
	e.cq, err = e.ctx.CreateCQ(16, e.ch)
	require.NoError(t, err)
	e.qp, err = e.pd.CreateQP(ibverbs.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, MaxSendWR: 4, MaxRecvWR: 4})
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, f := range []func() error{e.qp.Destroy, e.cq.Destroy, e.ch.Close, e.pd.Dealloc, e.ctx.Close} {
			require.NoError(t, f())
		}
	})
	require.NoError(t, e.qp.Modify(ibverbs.QPAttr{State: ibverbs.QPInit, PortNum: 1}, ibverbs.QPAttrState|initMask))
	return e
}

func (e *end) rtr(ah ibverbs.AHAttr, dest uint32, mtu ibverbs.MTU) error {
	attr := ibverbs.QPAttr{State: ibverbs.QPRTR, AH: ah, DestQPNum: dest, PathMTU: mtu, MinRNRTimer: 12}
	return e.qp.Modify(attr, ibverbs.QPAttrState|rtrMask)
}

func (e *end) rts(t *testing.T) {
	t.Helper()
	attr := ibverbs.QPAttr{State: ibverbs.QPRTS, Timeout: 14, RetryCnt: 7}
	require.NoError(t, e.qp.Modify(attr, ibverbs.QPAttrState|rtsMask))
}

// send posts an empty signalled send and returns its status.
func (e *end) send(t *testing.T) ibverbs.WCStatus {
	t.Helper()
	require.NoError(t, e.cq.ReqNotify(false))
	_, err := e.qp.PostSend([]ibverbs.SendWR{{Opcode: ibverbs.WRSend, Flags: ibverbs.SendSignaled}})
	require.NoError(t, err)
	return e.next(t).Status
}

// next waits for a completion; the queue is armed.
func (e *end) next(t *testing.T) ibverbs.WC {
	t.Helper()
	var wc [1]ibverbs.WC
	for {
		n, err := e.cq.Poll(wc[:])
		require.NoError(t, err)
		if n > 0 {
			return wc[0]
		}
		_, err = e.ch.Wait()
		require.NoError(t, err)
	}
}

func twoNICs() (a, b *Device) {
	f := New()
	return f.NewDevice(Config{Name: "nic0", Ports: []Port{RoCE("10.0.0.1", "eth0")}}),
		f.NewDevice(Config{Name: "nic1", Ports: []Port{RoCE("10.0.0.2", "eth0")}})
}

// connected returns two ends in state RTS.
func connected(t *testing.T, da, db *Device) (a, b *end) {
	t.Helper()
	a, b = newEnd(t, da), newEnd(t, db)
	require.NoError(t, a.rtr(handle(db), b.qp.Num(), ibverbs.MTU4096))
	require.NoError(t, b.rtr(handle(da), a.qp.Num(), ibverbs.MTU4096))
	a.rts(t)
	b.rts(t)
	return a, b
}

func TestRouteErrors(t *testing.T) {
	da, db := twoNICs()
	good := handle(db)
	for name, tt := range map[string]struct {
		spoil func(*ibverbs.AHAttr)
		mtu   ibverbs.MTU
		want  error
	}{
		"unknown GID":     {func(ah *ibverbs.AHAttr) { ah.DGID[15] = 9 }, ibverbs.MTU4096, ErrNoRoute},
		"no GID":          {func(ah *ibverbs.AHAttr) { ah.IsGlobal = false }, ibverbs.MTU4096, ibverbs.ErrInvalid},
		"empty GID index": {func(ah *ibverbs.AHAttr) { ah.SGIDIndex = 0 }, ibverbs.MTU4096, ibverbs.ErrInvalid},
		"other port":      {func(ah *ibverbs.AHAttr) { ah.PortNum = 2 }, ibverbs.MTU4096, ibverbs.ErrInvalid},
		"no MTU":          {func(*ibverbs.AHAttr) {}, 0, ibverbs.ErrInvalid},
		"MTU above":       {func(*ibverbs.AHAttr) {}, ibverbs.MTU4096 + 1, ibverbs.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			ah := good
			tt.spoil(&ah)
			err := newEnd(t, da).rtr(ah, 77, tt.mtu)
			require.ErrorIs(t, err, tt.want)
			var e *ibverbs.Error
			require.True(t, errors.As(err, &e))
		})
	}
	t.Run("MTUs differ", func(t *testing.T) {
		a, b := newEnd(t, da), newEnd(t, db)
		require.NoError(t, a.rtr(good, b.qp.Num(), ibverbs.MTU4096))
		require.ErrorIs(t, b.rtr(handle(da), a.qp.Num(), ibverbs.MTU1024), ibverbs.ErrInvalid)
	})
	t.Run("half of the attributes", func(t *testing.T) {
		a := newEnd(t, da)
		err := a.qp.Modify(ibverbs.QPAttr{State: ibverbs.QPRTR, DestQPNum: 7}, ibverbs.QPAttrState|rtrSoft)
		require.ErrorIs(t, err, ibverbs.ErrInvalid)
	})
	t.Run("port down", func(t *testing.T) {
		down := RoCE("10.0.0.2", "eth0")
		down.Attr.State = ibverbs.PortDown
		db.SetPort(1, down)
		require.ErrorIs(t, newEnd(t, da).rtr(good, 77, ibverbs.MTU4096), ErrNoRoute)
		require.ErrorIs(t, newEnd(t, db).rtr(handle(da), 77, ibverbs.MTU4096), ibverbs.ErrInvalid)
	})
}

// A queue pair without a peer notices when it sends, and not before.
func TestNobodyThere(t *testing.T) {
	da, db := twoNICs()
	a := newEnd(t, da)
	require.NoError(t, a.rtr(handle(db), 77, ibverbs.MTU4096))
	a.rts(t)
	require.Equal(t, ibverbs.QPRTS, a.qp.State())
	require.Equal(t, ibverbs.WCRetryExcErr, a.send(t))
}

// A peer that is gone, at whatever step, is noticed when something is sent.
func TestPeerGone(t *testing.T) {
	t.Run("before it connects", func(t *testing.T) {
		da, db := twoNICs()
		a, b := newEnd(t, da), newEnd(t, db)
		require.NoError(t, a.rtr(handle(db), b.qp.Num(), ibverbs.MTU4096))
		a.rts(t)
		require.NoError(t, b.qp.Destroy())
		require.Equal(t, ibverbs.WCRetryExcErr, a.send(t))
	})
	t.Run("connected", func(t *testing.T) {
		da, db := twoNICs()
		a, b := connected(t, da, db)
		_, err := a.qp.PostRecv([]ibverbs.RecvWR{{WRID: 5}})
		require.NoError(t, err)
		require.NoError(t, b.qp.Destroy())
		require.Equal(t, ibverbs.QPRTS, a.qp.State())
		_, err = a.qp.PostSend([]ibverbs.SendWR{{Opcode: ibverbs.WRSend}})
		require.NoError(t, err)
		require.NoError(t, a.cq.ReqNotify(false))
		statuses := []ibverbs.WCStatus{a.next(t).Status}
		require.NoError(t, a.cq.ReqNotify(false))
		statuses = append(statuses, a.next(t).Status)
		require.ElementsMatch(t, []ibverbs.WCStatus{ibverbs.WCRetryExcErr, ibverbs.WCWRFlushErr}, statuses)
		require.Equal(t, ibverbs.QPErr, a.qp.State())
	})
}

func TestEvents(t *testing.T) {
	da, db := twoNICs()
	a, b := connected(t, da, db)
	ctx := a.ctx.(*Context)
	down := RoCE("10.0.0.1", "eth0")
	down.Attr.State = ibverbs.PortDown
	require.NoError(t, b.cq.ReqNotify(false))
	_, err := b.qp.PostRecv([]ibverbs.RecvWR{{}})
	require.NoError(t, err)
	da.SetPort(1, down)
	da.SetPort(1, RoCE("10.0.0.1", "eth0"))
	da.SetPort(1, RoCE("10.0.0.3", "eth0"))
	da.Raise(ibverbs.AsyncEvent{Type: ibverbs.EventQPFatal, QP: a.qp.Num()})
	da.Kill()
	for _, want := range []ibverbs.AsyncEvent{
		{Type: ibverbs.EventPortErr, Port: 1}, {Type: ibverbs.EventPortActive, Port: 1}, {Type: ibverbs.EventGIDChange, Port: 1},
		{Type: ibverbs.EventQPFatal, QP: a.qp.Num()}, {Type: ibverbs.EventDeviceFatal},
	} {
		got, err := ctx.AsyncEvent()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Equal(t, ibverbs.WCWRFlushErr, b.next(t).Status, "the port that went down cut the link")
	gids, err := ctx.GIDs(1)
	require.NoError(t, err)
	require.Equal(t, "10.0.0.3", gids[0].GID.Addr().String())
	_, err = a.pd.CreateQP(ibverbs.QPInitAttr{SendCQ: a.cq, RecvCQ: a.cq})
	require.ErrorIs(t, err, ibverbs.ErrInvalid)

	blocked := make(chan error)
	other, err := da.Open()
	require.NoError(t, err)
	go func() {
		_, err := other.(*Context).AsyncEvent()
		blocked <- err
	}()
	require.NoError(t, other.Close())
	require.ErrorIs(t, <-blocked, ibverbs.ErrClosed)
	_, err = other.(*Context).QueryPort(1)
	require.ErrorIs(t, err, ibverbs.ErrClosed)
}

// Memory is named by the address that it was registered under.
func TestDeviceMemory(t *testing.T) {
	mem := make([]byte, 8192) // never the target of a work request
	f := New()
	none := newEnd(t, f.NewDevice(Config{Name: "nic0", Ports: []Port{RoCE("10.0.0.1", "eth0")}, Limits: ibverbs.DeviceAttr{MaxMRSize: 8192}}))
	pd := none.pd.(ibverbs.DevicePD)
	mr, err := pd.RegMRIova(mem, 1<<40, ibverbs.AccessLocalWrite)
	require.NoError(t, err)
	require.EqualValues(t, 1<<40, mr.Addr())
	require.NoError(t, mr.Dereg())
	_, err = pd.RegMRIova(make([]byte, 8193), 1<<40, 0)
	require.ErrorIs(t, err, ibverbs.ErrInvalid)
	_, err = pd.RegDMABufMR(0, 4096, 1<<40, 3, 0)
	require.ErrorIs(t, err, ibverbs.ErrNotSupported)
	_, err = pd.RegPeerMR(1<<40, 4096, 0)
	require.ErrorIs(t, err, ibverbs.ErrNotSupported)

	both := newEnd(t, f.NewDevice(Config{
		Name: "nic1", Ports: []Port{RoCE("10.0.0.2", "eth0")},
		RegDMABuf: func(_ int, offset, length uint64) ([]byte, error) { return mem[offset:][:length], nil },
		RegPeer:   func(uint64, uint64) ([]byte, error) { return mem, nil },
	}))
	pd = both.pd.(ibverbs.DevicePD)
	mr, err = pd.RegDMABufMR(4096, 4096, 1<<40|4096, 3, 0)
	require.NoError(t, err)
	require.NoError(t, mr.Dereg())
	_, err = pd.RegDMABufMR(4096, 4096, 1<<40|512, 3, 0)
	require.ErrorIs(t, err, ibverbs.ErrInvalid)
	mr, err = pd.RegPeerMR(1<<40, 8192, 0)
	require.NoError(t, err)
	require.NoError(t, mr.Dereg())
}
