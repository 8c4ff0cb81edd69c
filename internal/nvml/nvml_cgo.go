//go:build cgo && linux

package nvml

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Query asks the library. Errors: ErrNotSupported without it, else what it says.
func Query() (System, error) { return query(nvml.New()) }

func query(lib nvml.Interface) (s System, err error) {
	switch ret := lib.Init(); ret {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return System{}, fmt.Errorf("nvml: init: %w: no libnvidia-ml.so.1; install the NVIDIA driver, or in a container its libraries", ErrNotSupported)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return System{}, failure(ret, "init", "modprobe nvidia")
	case nvml.ERROR_NO_PERMISSION:
		return System{}, failure(ret, "init", "allow this process to open /dev/nvidiactl")
	default:
		return System{}, failure(ret, "init", "")
	}
	defer func() {
		if ret := lib.Shutdown(); ret != nvml.SUCCESS {
			err = errors.Join(err, failure(ret, "shutdown", ""))
		}
	}()
	return system(lib)
}

func system(lib nvml.Interface) (System, error) {
	driver, ret := lib.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		return System{}, failure(ret, "driver version", "")
	}
	s := System{Driver: driver}
	// Optional: a number like 12080.
	if v, ret := lib.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
		s.CUDA = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	count, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return System{}, failure(ret, "device count", "")
	}
	for i := range count {
		g, ret := gpu(lib, i)
		if ret != nvml.SUCCESS {
			return System{}, failure(ret, fmt.Sprintf("device %d", i), "")
		}
		s.GPUs = append(s.GPUs, g)
	}
	return s, nil
}

func gpu(lib nvml.Interface, index int) (g GPU, ret nvml.Return) {
	d, ret := lib.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return g, ret
	}
	if g.Name, ret = d.GetName(); ret != nvml.SUCCESS {
		return g, ret
	}
	if g.UUID, ret = d.GetUUID(); ret != nvml.SUCCESS {
		return g, ret
	}
	pci, ret := d.GetPciInfo()
	if ret != nvml.SUCCESS {
		return g, ret
	}
	g.BusID = text(pci.BusId[:])
	memory, ret := d.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return g, ret
	}
	g.Memory = memory.Total
	// Optional: not every GPU and driver tells.
	if bar1, ret := d.GetBAR1MemoryInfo(); ret == nvml.SUCCESS {
		g.BAR1 = bar1.Bar1Total
	}
	return g, nvml.SUCCESS
}

// text is a C string in an array.
func text(chars []int8) string {
	b := make([]byte, 0, len(chars))
	for _, c := range chars {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}

func failure(ret nvml.Return, op, remedy string) error {
	err := fmt.Errorf("nvml: %s: %w", op, ret)
	if remedy != "" {
		err = fmt.Errorf("%w; %s", err, remedy)
	}
	return err
}
