package hostmap

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/gdrpc/gdrpc/gpubuf"
	"golang.org/x/sys/unix"
)

// sizeSeals keep the size of a memfd for ever, so that no process that maps it
// can be made to fault (SIGBUS) by another that shrinks it (fcntl(2),
// F_ADD_SEALS).
const sizeSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// NewMemfd makes memory of a fixed size that other processes can map.
// gpubuf.ErrOutOfMemory if the system refuses it.
func NewMemfd(name string, size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate("gdrpc-"+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, systemError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "memfd:gdrpc-"+name)
	if err := unix.Ftruncate(fd, size); err != nil {
		return nil, errors.Join(systemError("ftruncate", err), f.Close())
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sizeSeals); err != nil {
		return nil, errors.Join(systemError("F_ADD_SEALS", err), f.Close())
	}
	return f, nil
}

// SealWrites lets nobody map or write the memory of f for writing from now on;
// mappings that exist stay as they are. A peer that is handed f can then read
// and no more. Kernels before 5.1 have no such seal: there it is left out.
func SealWrites(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL)
	if errors.Is(err, unix.EINVAL) {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL)
	}
	if err != nil {
		return systemError("F_ADD_SEALS", err)
	}
	return nil
}

// Dup returns a descriptor of its own for the memory of f.
func Dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, systemError("dup", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// MapFile maps all of f, a memfd of that size, readable and writable.
func MapFile(f *os.File, size int64) (*Mapping, error) {
	m, err := Reserve(size)
	if err != nil {
		return nil, err
	}
	_, err = unix.MmapPtr(int(f.Fd()), 0, m.base, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		return nil, errors.Join(mapError(size, err), m.Unmap())
	}
	_ = unix.Madvise(m.Bytes(), unix.MADV_HUGEPAGE) // best effort, as in Map
	return m, nil
}

// ViewFile maps f, which comes from another process and may be anything, for
// reading. It is refused unless it is a memfd of exactly size bytes that is
// sealed against shrinking.
func ViewFile(f *os.File, size int64) ([]byte, error) {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("not a memfd (F_GET_SEALS: %w)", err)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return nil, errors.New("a memfd without F_SEAL_SHRINK: its owner could make this process fault")
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return nil, fmt.Errorf("fstatfs: %w", err)
	}
	if fs.Type != unix.TMPFS_MAGIC {
		return nil, fmt.Errorf("a memfd of file system %#x, such as of huge pages: reading it faults when the host has none left", fs.Type)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("fstat: %w", err)
	}
	if size <= 0 || size > maxSize || st.Size != size {
		return nil, fmt.Errorf("a memfd of %d bytes where %d are announced", st.Size, size)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, mapError(size, err)
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	return b, nil
}

// Unview undoes ViewFile.
func Unview(b []byte) error { return unix.Munmap(b) }

func systemError(op string, err error) error {
	if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("%s: %w (%w)", op, gpubuf.ErrOutOfMemory, err)
	}
	if errors.Is(err, unix.EMFILE) {
		return fmt.Errorf("%s: %w; the process needs more descriptors (ulimit -n)", op, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

// MapWords maps n 64-bit words of f, readable and writable.
func MapWords(f *os.File, n int) ([]uint64, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, n*8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, mapError(int64(n)*8, err)
	}
	return Words(b), nil
}

// UnmapWords undoes MapWords.
func UnmapWords(w []uint64) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(w)), uintptr(len(w))*8)
}
