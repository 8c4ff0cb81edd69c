//go:build linux && cgo

package verbs

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// sendsOf returns n sends, the ith with i%3 entries.
func sendsOf(n int) []ibverbs.SendWR {
	wrs := make([]ibverbs.SendWR, n)
	for i := range wrs {
		wrs[i] = ibverbs.SendWR{WRID: uint64(i), Opcode: ibverbs.WRSend, SGList: make([]ibverbs.SGE, i%3)}
	}
	return wrs
}

func TestPostSend(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	q.rts(t)
	f.calls()
	n, err := q.PostSend([]ibverbs.SendWR{
		{WRID: 1<<64 - 1, Opcode: ibverbs.WRSendWithImm, Imm: 0x01020304, Flags: ibverbs.SendSignaled,
			SGList: []ibverbs.SGE{{Addr: 1<<64 - 1, Length: 1<<32 - 1, LKey: 7}, {Addr: 0xabc, Length: 2, LKey: 8}}},
		{WRID: 2, Opcode: ibverbs.WRSend},
		{WRID: 3, Opcode: ibverbs.WRSend, SGList: []ibverbs.SGE{{Addr: 0xdef, Length: 3, LKey: 9}}},
	})
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, []string{
		"post_send qp=0x40 requests=3",
		" send wr_id=18446744073709551615 opcode=3 flags=2 imm=01020304 ffffffffffffffff+4294967295/7 abc+2/8",
		" send wr_id=2 opcode=2 flags=0 imm=00000000",
		" send wr_id=3 opcode=2 flags=0 imm=00000000 def+3/9",
	}, f.calls())
}

func TestPostRecv(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	_, err := q.PostRecv([]ibverbs.RecvWR{{}})
	requireError(t, err, "post_recv", ibverbs.ErrInvalid, "IBV_QPS_RESET")
	q.rts(t)
	f.calls()
	n, err := q.PostRecv([]ibverbs.RecvWR{{WRID: 5, SGList: []ibverbs.SGE{{Addr: 0x10, Length: 1, LKey: 2}, {Addr: 0x20, Length: 2, LKey: 3}}}, {WRID: 6}})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, []string{"post_recv qp=0x40 requests=2", " recv wr_id=5 10+1/2 20+2/3", " recv wr_id=6"}, f.calls())
}

// TestPostBatches checks that long lists go to C in few pieces, in order and
// whole.
func TestPostBatches(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	q.rts(t)
	for _, tt := range []struct {
		n, entries int
		pieces     []int
	}{
		{0, 0, nil},
		{128, 2, []int{128}},
		{129, 1, []int{128, 1}},
		{300, 0, []int{128, 128, 44}},
		{40, 16, []int{16, 16, 8}}, // 256 entries for each
		{50, 15, []int{17, 17, 16}},
	} {
		sends, recvs := make([]ibverbs.SendWR, tt.n), make([]ibverbs.RecvWR, tt.n)
		for i := range tt.n {
			list := make([]ibverbs.SGE, tt.entries)
			for j := range list {
				list[j].LKey = uint32(i*100 + j)
			}
			sends[i] = ibverbs.SendWR{WRID: uint64(i), SGList: list, Opcode: ibverbs.WRSend}
			recvs[i] = ibverbs.RecvWR{WRID: uint64(i), SGList: list}
		}
		f.write("log", "")
		n, err := q.PostSend(sends)
		require.NoError(t, err)
		require.Equal(t, tt.n, n)
		n, err = q.PostRecv(recvs)
		require.NoError(t, err)
		require.Equal(t, tt.n, n)
		calls := f.calls()
		var want []string
		for _, kind := range []string{"send", "recv"} {
			i := 0
			for _, size := range tt.pieces {
				want = append(want, fmt.Sprintf("post_%s qp=0x40 requests=%d", kind, size))
				for range size {
					want = append(want, request(kind, i, tt.entries))
					i++
				}
			}
		}
		require.Equal(t, strings.Join(want, "\n"), strings.Join(calls, "\n"))
	}
}

// request is a line of the fake for the ith request of TestPostBatches.
func request(kind string, i, entries int) string {
	line := fmt.Sprintf(" %s wr_id=%d", kind, i)
	if kind == "send" {
		line += " opcode=2 flags=0 imm=00000000"
	}
	for j := range entries {
		line += fmt.Sprintf(" 0+0/%d", i*100+j)
	}
	return line
}

// TestPostRefused checks the number of requests taken and the error for each way
// in which drivers refuse.
func TestPostRefused(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	q.rts(t)
	for _, tt := range []struct {
		result string // errno, index in the piece
		n      int
		want   error
	}{
		{"12 0", 0, ibverbs.ErrOutOfMemory},
		{"12 3", 3, ibverbs.ErrOutOfMemory},
		{"-12 5", 5, ibverbs.ErrOutOfMemory},
		{"22 9", 9, ibverbs.ErrInvalid},
		{"12 -1", 0, ibverbs.ErrOutOfMemory}, // none named
	} {
		f.fail("post_send", tt.result)
		n, err := q.PostSend(sendsOf(10))
		requireError(t, err, "post_send", tt.want, "fake0 qp 64")
		require.Equal(t, tt.n, n, tt.result)
		f.succeed("post_send")

		f.fail("post_recv", tt.result)
		n, err = q.PostRecv(make([]ibverbs.RecvWR, 10))
		requireError(t, err, "post_recv", tt.want)
		require.Equal(t, tt.n, n, tt.result)
		f.succeed("post_recv")
	}
	f.fail("post_send", "-1 2") // with errno ENOMEM
	n, err := q.PostSend(sendsOf(10))
	requireError(t, err, "post_send", ibverbs.ErrOutOfMemory, "poll its completions")
	require.Equal(t, 2, n)
}

// TestPostInvalid checks what is wrong before C sees it: the requests ahead are
// posted, those behind are not.
func TestPostInvalid(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	require.NoError(t, q.Modify(ibverbs.QPAttr{State: ibverbs.QPInit}, ibverbs.QPAttrState))
	_, err := q.PostSend(sendsOf(1))
	requireError(t, err, "post_send", ibverbs.ErrInvalid, "IBV_QPS_INIT")
	q.rts(t)
	for _, bad := range []ibverbs.SendWR{
		{Opcode: 0}, {Opcode: 99}, {Opcode: ibverbs.WRSend, Flags: 8}, {Opcode: ibverbs.WRSend, SGList: make([]ibverbs.SGE, 17)},
	} {
		for _, at := range []int{0, 1, 127, 128, 150} {
			f.write("log", "")
			wrs := sendsOf(200)
			wrs[at] = bad
			n, err := q.PostSend(wrs)
			requireError(t, err, "post_send", ibverbs.ErrInvalid)
			require.Equal(t, at, n)
			require.Equal(t, at, strings.Count(strings.Join(f.calls(), "\n"), " send "))
		}
	}
	recvs := make([]ibverbs.RecvWR, 5)
	recvs[3].SGList = make([]ibverbs.SGE, 17)
	n, err := q.PostRecv(recvs)
	requireError(t, err, "post_recv", ibverbs.ErrInvalid, "17 scatter/gather entries")
	require.Equal(t, 3, n)
}

// TestPostRecvInErr checks that receives are flushed by drivers that do not look
// at them in ERR.
func TestPostRecvInErr(t *testing.T) {
	for name, toErr := range map[string]func(*fake, fakeQP){
		"Modify": func(f *fake, q fakeQP) {
			require.NoError(f.t, q.Modify(ibverbs.QPAttr{State: ibverbs.QPErr}, ibverbs.QPAttrState))
		},
		"completion": func(f *fake, q fakeQP) {
			f.complete("0", "7 12 0 0 0 0 64 0")
			_, err := q.scq.Poll(make([]ibverbs.WC, 1))
			require.NoError(f.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			q := f.newQP()
			q.rts(t)
			toErr(f, q)
			f.write("log", "")
			_, err := q.PostRecv(make([]ibverbs.RecvWR, 2))
			require.NoError(t, err)
			calls := f.calls()
			require.Len(t, calls, 4)
			require.Contains(t, calls[3], "ibv_modify_qp qp=0x40 mask=0x1 state=6 ")
		})
	}
}

// TestNoAllocations checks the data path.
func TestNoAllocations(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	q.rts(t)
	sends, recvs, wcs := sendsOf(8), make([]ibverbs.RecvWR, 8), make([]ibverbs.WC, 8)
	recvs[0].SGList = make([]ibverbs.SGE, 2)
	lines := make([]string, 2000)
	for i := range lines {
		lines[i] = "1 0 128 0 5 0 64 0"
	}
	f.complete("0", lines...)
	for name, call := range map[string]func() error{
		"PostSend":   func() error { _, err := q.PostSend(sends); return err },
		"PostRecv":   func() error { _, err := q.PostRecv(recvs); return err },
		"Poll":       func() error { _, err := q.scq.Poll(wcs); return err },
		"Poll empty": func() error { _, err := q.rcq.Poll(wcs); return err },
		"ReqNotify":  func() error { return q.scq.ReqNotify(false) },
	} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if err := call(); err != nil {
				t.Error(err)
			}
		}), name)
	}
}

// TestPostDuringDestroy races every call with destruction: each is done or
// refused with ErrClosed.
func TestPostDuringDestroy(t *testing.T) {
	f := newFake(t)
	q := f.newQP()
	q.rts(t)
	var wg sync.WaitGroup
	started := make(chan struct{}, 5)
	until := func(call func() error) {
		wg.Go(func() {
			for i := 0; ; i++ {
				err := call()
				if i == 1 {
					started <- struct{}{}
				}
				if err != nil {
					requireError(t, err, err.(*ibverbs.Error).Op, ibverbs.ErrClosed)
					return
				}
			}
		})
	}
	sends, recvs := sendsOf(3), make([]ibverbs.RecvWR, 3)
	until(func() error { _, err := q.PostSend(sends); return err })
	until(func() error { _, err := q.PostRecv(recvs); return err })
	until(func() error { return q.Modify(ibverbs.QPAttr{State: ibverbs.QPRTS}, ibverbs.QPAttrState) })
	until(func() error { _, err := q.scq.Poll(make([]ibverbs.WC, 4)); return err })
	until(func() error { q.State(); return q.scq.ReqNotify(false) })
	for range cap(started) {
		<-started
	}
	require.NoError(t, q.Destroy())
	require.NoError(t, q.scq.Destroy())
	wg.Wait()
}
