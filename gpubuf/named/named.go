// Package named opens devices by the names that command lines use: "host",
// "emu:0", "cuda:1".
package named

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/cuda"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/host"
)

// Names is what Open takes, for usage texts.
const Names = "cuda, emu, emu-async or host; cuda:INDEX and emu:INDEX for another than the first"

// Open opens the device that a name means, KIND or KIND:INDEX: "host", "emu",
// "emu-async" (emu.NewAsync) and "cuda", whose index counts the GPUs that the
// driver shows this process. There is one host. The caller closes the device. Errors:
// of the name, and those of cuda.New, which match gpubuf.ErrNoDevice and
// gpubuf.ErrNotSupported.
func Open(name string) (gpubuf.Device, error) {
	kind, number, numbered := strings.Cut(name, ":")
	if !slices.Contains([]string{"host", "emu", "emu-async", "cuda"}, kind) {
		return nil, wrong(name, "no such device")
	}
	index, err := 0, error(nil)
	if numbered {
		index, err = strconv.Atoi(number)
	}
	if err != nil || index < 0 {
		return nil, wrong(name, fmt.Sprintf("bad index %q, which is a number from 0", number))
	}
	switch kind {
	case "host":
		if index > 0 {
			return nil, wrong(name, "bad index: there is one host")
		}
		return host.New(), nil
	case "emu":
		return checked(emu.New(&emu.Config{Index: index}))
	case "emu-async":
		return checked(emu.NewAsync(&emu.Config{Index: index}, nil))
	default:
		return checked(cuda.New(&cuda.Config{Index: index}))
	}
}

// Warm uses the device that a name means, if there is one, and keeps it until
// the process ends: drivers open files when they are first asked for a thing, which
// is no leak of whoever asks next. It is for test binaries, before they look for
// leaks.
func Warm(name string) {
	d, err := Open(name)
	if err != nil {
		return // whoever needs it will hear
	}
	if m, err := d.Alloc(2 << 20); err == nil {
		defer m.Free()
	}
}

// checked keeps a nil device out of the interface.
func checked[D gpubuf.Device](d D, err error) (gpubuf.Device, error) {
	if err != nil {
		return nil, err
	}
	return d, nil
}

func wrong(name, cause string) error {
	if name == "" {
		cause = "empty name"
	}
	return fmt.Errorf("named: open %q: %s; want %s", name, cause, Names)
}
