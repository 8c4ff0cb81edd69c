//go:build linux && cgo

package verbs

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fake is a libibverbs that notes its calls and does what files say; see
// testdata/fakeverbs.c.
type fake struct {
	t   testing.TB
	dir string
	lib *library
}

// newFake builds the library, with C macros defined, and loads it.
func newFake(t testing.TB, macros ...string) *fake {
	f := &fake{t: t, dir: t.TempDir()}
	var err error
	f.lib, err = load(f.build(macros...))
	require.NoError(t, err)
	f.lib.sysfs = filepath.Join(f.dir, "sysfs")
	f.write("devices", "fake0\nfake1\n")
	return f
}

// build returns the path of the library.
func (f *fake) build(macros ...string) string {
	requireCC(f.t)
	path := filepath.Join(f.dir, "libfakeverbs.so")
	args := []string{"-shared", "-fPIC", "-Wall", "-Werror", "-I.", `-DFAKE_DIR="` + f.dir + `"`, "-o", path, "testdata/fakeverbs.c"}
	for _, m := range macros {
		args = append(args, "-D"+m)
	}
	out, err := exec.Command("cc", args...).CombinedOutput()
	require.NoError(f.t, err, string(out))
	return path
}

func (f *fake) write(name, text string) {
	path := filepath.Join(f.dir, name)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(f.t, os.WriteFile(path, []byte(text), 0o600))
}

// fail makes a call of C return result until succeed.
func (f *fake) fail(call, result string) { f.write("fail/"+call, result) }

func (f *fake) succeed(call string) {
	require.NoError(f.t, os.Remove(filepath.Join(f.dir, "fail", call)))
}

// calls returns the calls of C since it was last called.
func (f *fake) calls() []string {
	path := filepath.Join(f.dir, "log")
	text, err := os.ReadFile(path)
	require.NoError(f.t, err)
	require.NoError(f.t, os.Truncate(path, 0))
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// complete adds completions to the nth completion queue, in C's numbers.
func (f *fake) complete(n string, lines ...string) {
	file, err := os.OpenFile(filepath.Join(f.dir, "wcs-"+n), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	require.NoError(f.t, err)
	defer file.Close()
	_, err = file.WriteString(strings.Join(lines, "\n") + "\n")
	require.NoError(f.t, err)
}

// event writes numbers to a FIFO.
func (f *fake) event(fifo string, numbers ...int32) {
	file, err := os.OpenFile(filepath.Join(f.dir, fifo), os.O_WRONLY|unix.O_NONBLOCK, 0)
	require.NoError(f.t, err)
	defer file.Close()
	var b bytes.Buffer
	require.NoError(f.t, binary.Write(&b, binary.NativeEndian, numbers))
	_, err = file.Write(b.Bytes())
	require.NoError(f.t, err)
}

// open opens fake0 and closes it at the end of the test.
func (f *fake) open() *Context {
	ctx, err := f.lib.openByName("fake0")
	require.NoError(f.t, err)
	f.atEnd(ctx.Close)
	return ctx.(*Context)
}

func (f *fake) atEnd(end func() error) {
	f.t.Cleanup(func() { require.NoError(f.t, end()) })
}

// fakeQP is a queue pair with what it needs.
type fakeQP struct {
	*QP
	ctx      *Context
	pd       *PD
	ch       *CompChannel
	scq, rcq *CQ
}

// newQP makes a queue pair and everything below it.
func (f *fake) newQP() fakeQP {
	q := fakeQP{ctx: f.open()}
	pd, err := q.ctx.AllocPD()
	require.NoError(f.t, err)
	f.atEnd(pd.Dealloc)
	ch, err := q.ctx.CreateCompChannel()
	require.NoError(f.t, err)
	f.atEnd(ch.Close)
	scq, err := q.ctx.CreateCQ(100, ch)
	require.NoError(f.t, err)
	f.atEnd(scq.Destroy)
	rcq, err := q.ctx.CreateCQ(200, ch)
	require.NoError(f.t, err)
	f.atEnd(rcq.Destroy)
	qp, err := pd.CreateQP(ibverbs.QPInitAttr{SendCQ: scq, RecvCQ: rcq, MaxSendWR: 10, MaxRecvWR: 20})
	require.NoError(f.t, err)
	f.atEnd(qp.Destroy)
	q.QP, q.pd, q.ch, q.scq, q.rcq = qp.(*QP), pd.(*PD), ch.(*CompChannel), scq.(*CQ), rcq.(*CQ)
	return q
}

// rts moves q to RTS, as far as the fake cares.
func (q fakeQP) rts(t testing.TB) {
	for _, s := range []ibverbs.QPState{ibverbs.QPInit, ibverbs.QPRTR, ibverbs.QPRTS} {
		require.NoError(t, q.Modify(ibverbs.QPAttr{State: s}, ibverbs.QPAttrState))
	}
}

// mapped returns memory outside the Go heap.
func mapped(t testing.TB, n int) []byte {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(mem)) })
	return mem
}

// requireError requires an *ibverbs.Error of op that wraps want and whose text has
// all of texts.
func requireError(t testing.TB, err error, op string, want error, texts ...string) {
	t.Helper()
	var e *ibverbs.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, op, e.Op)
	require.ErrorIs(t, err, want)
	for _, text := range texts {
		require.ErrorContains(t, err, text)
	}
}
