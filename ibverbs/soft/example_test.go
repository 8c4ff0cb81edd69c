package soft_test

import (
	"fmt"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft"
	"golang.org/x/sys/unix"
)

// end is a queue pair and what it is made of. Errors are fatal in this example.
type end struct {
	ctx ibverbs.Context
	pd  ibverbs.PD
	cq  ibverbs.CQ
	qp  ibverbs.QP
	mr  ibverbs.MR
	mem []byte
}

func newEnd(w *soft.Wire) *end {
	e := &end{}
	e.ctx = must(soft.NewDevice(nil).Open())
	e.pd = must(e.ctx.AllocPD())
	e.cq = must(e.ctx.CreateCQ(8, nil))
	e.qp = must(e.pd.CreateQP(ibverbs.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, MaxSendWR: 4, MaxRecvWR: 4}))
	e.mem = must(unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))
	e.mr = must(e.pd.RegMR(e.mem, ibverbs.AccessLocalWrite))
	check(e.qp.Modify(ibverbs.QPAttr{State: ibverbs.QPInit}, ibverbs.QPAttrState))
	check(w.Attach(e.qp))
	return e
}

func (e *end) connect(peer *end) {
	check(e.qp.Modify(ibverbs.QPAttr{State: ibverbs.QPRTR, DestQPNum: peer.qp.Num()},
		ibverbs.QPAttrState|ibverbs.QPAttrDestQPNum|ibverbs.QPAttrRQPSN))
	check(e.qp.Modify(ibverbs.QPAttr{State: ibverbs.QPRTS}, ibverbs.QPAttrState|ibverbs.QPAttrSQPSN))
}

func (e *end) sge(n int) []ibverbs.SGE {
	return []ibverbs.SGE{{Addr: e.mr.Addr(), Length: uint32(n), LKey: e.mr.LKey()}}
}

func (e *end) close() {
	for _, f := range []func() error{e.qp.Destroy, e.cq.Destroy, e.mr.Dereg, e.pd.Dealloc, e.ctx.Close} {
		check(f())
	}
	check(unix.Munmap(e.mem))
}

// One message between two queue pairs in memory.
func Example() {
	wa, wb := soft.Pipe()
	defer wa.Close()
	defer wb.Close()
	a, b := newEnd(wa), newEnd(wb)
	defer a.close()
	defer b.close()
	must(b.qp.PostRecv([]ibverbs.RecvWR{{WRID: 1, SGList: b.sge(4096)}}))
	b.connect(a)
	a.connect(b)

	n := copy(a.mem, "hello")
	must(a.qp.PostSend([]ibverbs.SendWR{{Opcode: ibverbs.WRSend, Flags: ibverbs.SendSignaled, SGList: a.sge(n)}}))

	wc := make([]ibverbs.WC, 1)
	for must(b.cq.Poll(wc)) == 0 { // or arm the queue and wait on its channel
	}
	fmt.Println(wc[0].Status, wc[0].Opcode, wc[0].WRID, string(b.mem[:wc[0].ByteLen]))
	// Output: IBV_WC_SUCCESS IBV_WC_RECV 1 hello
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
