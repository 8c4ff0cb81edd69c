package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// ipcHandleSize is the size of a CUipcMemHandle.
const ipcHandleSize = 64

// handle is what a Share of this package says.
//
//	offset  size  field
//	     0    16  UUID of the GPU
//	    16    64  CUipcMemHandle, of the driver's whole allocation
//	    80     8  CU_POINTER_ATTRIBUTE_BUFFER_ID, which differs where an
//	              address was freed and allocated again
//	    88     8  offset of the memory in the allocation
//	    96     8  process id of the exporter
//	   104     8  inode of its process id namespace, or 0
//
// Integers are little-endian.
type handle struct {
	uuid      UUID
	ipc       [ipcHandleSize]byte
	bufferID  uint64
	offset    uint64
	pid       uint64
	namespace uint64
}

const handleSize = 112

func (h *handle) encode() []byte {
	b := append(make([]byte, 0, handleSize), h.uuid[:]...)
	b = append(b, h.ipc[:]...)
	for _, v := range []uint64{h.bufferID, h.offset, h.pid, h.namespace} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func decodeHandle(b []byte) (h handle, ok bool) {
	if len(b) != handleSize {
		return h, false
	}
	copy(h.uuid[:], b)
	copy(h.ipc[:], b[16:])
	for i, v := range []*uint64{&h.bufferID, &h.offset, &h.pid, &h.namespace} {
		*v = binary.LittleEndian.Uint64(b[80+8*i:])
	}
	return h, true
}

// exporter says who this process is, among all of the host.
func exporter() (pid, namespace uint64) {
	return uint64(os.Getpid()), pidNamespace()
}

// Share exports the memory for other processes. Nothing that is to be seen by
// them may be freed while they have it open. Errors: gpubuf.ErrNotSupported,
// gpubuf.ErrDeviceLost, Error.
func (m *memory) Share() (gpubuf.Share, error) { return m.device.share(m.span, m.whole) }

// share exports a span of the allocation that begins at whole.
func (d *Device) share(s *span, whole gpubuf.DevicePtr) (gpubuf.Share, error) {
	if err := d.begin("share"); err != nil {
		return gpubuf.Share{}, err
	}
	defer d.end()
	h := handle{uuid: d.info.UUID, offset: uint64(s.base - whole)}
	var r result
	if h.ipc, r = d.drv.ipcShare(d.ctx, whole); r != 0 {
		return gpubuf.Share{}, d.fail(r, copyArgs(s.base, s.size))
	}
	i, r := d.drv.pointer(d.ctx, whole)
	if r != 0 {
		return gpubuf.Share{}, d.fail(r, copyArgs(s.base, s.size))
	}
	h.bufferID = i.bufferID
	h.pid, h.namespace = exporter()
	return gpubuf.Share{Kind: gpubuf.KindCUDA, Size: s.size, Handle: h.encode()}, nil
}

// shares are the allocations of other processes that a device has open.
type shares struct {
	mu   sync.Mutex
	open map[handle]*share // guarded by mu
}

// share is one of them: the driver opens each once.
type share struct {
	key   handle
	whole gpubuf.DevicePtr
	size  int64 // of the whole, from its first byte
	refs  int   // guarded by shares.mu
}

// OpenShare opens memory that another process shared, on this GPU or on one
// whose memory this one reaches, to be read by Copy. Errors:
// gpubuf.ErrNotSupported for memory of another kind, of a GPU out of reach and of
// this process;
// gpubuf.ErrDeviceLost; Error.
func (d *Device) OpenShare(s gpubuf.Share) (gpubuf.Memory, error) {
	h, err := d.checkShare(s)
	if err != nil {
		return nil, err
	}
	if err := d.begin("open share"); err != nil {
		return nil, err
	}
	defer d.end()
	d.shares.mu.Lock()
	defer d.shares.mu.Unlock()
	o, err := d.shared(h)
	if err != nil {
		return nil, err
	}
	if s.Size <= 0 || h.offset > uint64(o.size) || uint64(s.Size) > uint64(o.size)-h.offset {
		err := fmt.Errorf("%s: open share: %d bytes at %d are outside the exporter's allocation of %d", d.name, s.Size, h.offset, o.size)
		return nil, errors.Join(err, d.unshare(o))
	}
	d.objects.memory.Add(1)
	span := d.spans.insert(o.whole+gpubuf.DevicePtr(h.offset), s.Size, true)
	return &openedMemory{lent: lent{device: d, span: span, tracked: leak.Track("cuda.OpenedMemory")}, share: o}, nil
}

// checkShare says whether a share can be this device's to open.
func (d *Device) checkShare(s gpubuf.Share) (handle, error) {
	refuse := func(format string, args ...any) (handle, error) {
		return handle{}, fmt.Errorf("%s: open share: %w: %s", d.name, gpubuf.ErrNotSupported, fmt.Sprintf(format, args...))
	}
	h, ok := decodeHandle(s.Handle)
	pid, namespace := exporter()
	switch {
	case s.Kind != gpubuf.KindCUDA:
		return refuse("it is %v memory", s.Kind)
	case !ok:
		return refuse("a handle of %d bytes, want %d", len(s.Handle), handleSize)
	case h.uuid != d.info.UUID && !slices.Contains(d.peers, h.uuid):
		return refuse("the memory lies on %v, and this is %v, which does not reach it: no peer access, or not a GPU that CUDA_VISIBLE_DEVICES shows this process", h.uuid, d.info.UUID)
	case h.pid == pid && h.namespace == namespace && namespace != 0:
		return refuse("this process exported it, and CUDA opens memory of other processes only; use it as it is")
	}
	return h, nil
}

// shared returns an allocation of another process with a reference more. mu is
// held.
func (d *Device) shared(h handle) (*share, error) {
	key := h
	key.offset = 0
	if o := d.shares.open[key]; o != nil {
		o.refs++
		return o, nil
	}
	p, r := d.drv.ipcOpen(d.ctx, h.ipc)
	if r != 0 {
		return nil, d.openError(r, h)
	}
	o := &share{key: key, whole: p, refs: 1}
	i, r := d.drv.pointer(d.ctx, p)
	if r != 0 {
		d.drv.ipcClose(d.ctx, p)
		return nil, d.fail(r, fmt.Sprintf("%#x of process %d", uint64(p), h.pid))
	}
	o.size = i.size - int64(p-i.start)
	if d.shares.open == nil {
		d.shares.open = make(map[handle]*share)
	}
	d.shares.open[key] = o
	return o, nil
}

func (d *Device) openError(r result, h handle) error {
	e := d.fail(r, fmt.Sprintf("memory of process %d", h.pid))
	if r.code() == codeInvalidContext {
		e.Detail = "either this process exported it, which CUDA does not open, or the exporter has freed it or ended"
	}
	return e
}

// unshare drops a reference and closes the last. mu is held.
func (d *Device) unshare(o *share) error {
	if o.refs--; o.refs > 0 {
		return nil
	}
	delete(d.shares.open, o.key)
	if r := d.drv.ipcClose(d.ctx, o.whole); r != 0 {
		return d.fail(r, fmt.Sprintf("%#x", uint64(o.whole)))
	}
	return nil
}

// openedMemory is memory of another process. Its fields never change.
type openedMemory struct {
	lent
	share *share
}

// Free waits for the copies that are under way and closes the memory, if this
// was the last that uses it. Calling it again is an error.
func (m *openedMemory) Free() error {
	var closing error
	err := m.device.freeSpan(m.span, m.tracked, func() result {
		m.device.shares.mu.Lock()
		defer m.device.shares.mu.Unlock()
		closing = m.device.unshare(m.share)
		return 0
	})
	return errors.Join(err, closing)
}
