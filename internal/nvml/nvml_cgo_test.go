//go:build cgo && linux

package nvml

import (
	"errors"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/stretchr/testify/require"
)

// library fakes the library, with one GPU.
func library(d *mock.Device) *mock.Interface {
	ok := func() nvml.Return { return nvml.SUCCESS }
	return &mock.Interface{
		InitFunc:                       ok,
		ShutdownFunc:                   ok,
		SystemGetDriverVersionFunc:     func() (string, nvml.Return) { return "570.124.06", nvml.SUCCESS },
		SystemGetCudaDriverVersionFunc: func() (int, nvml.Return) { return 12080, nvml.SUCCESS },
		DeviceGetCountFunc:             func() (int, nvml.Return) { return 1, nvml.SUCCESS },
		DeviceGetHandleByIndexFunc:     func(int) (nvml.Device, nvml.Return) { return d, nvml.SUCCESS },
	}
}

func device() *mock.Device {
	var pci nvml.PciInfo
	for i, c := range "00000000:1B:00.0" {
		pci.BusId[i] = int8(c)
	}
	return &mock.Device{
		GetNameFunc:           func() (string, nvml.Return) { return "NVIDIA H200", nvml.SUCCESS },
		GetUUIDFunc:           func() (string, nvml.Return) { return "GPU-1", nvml.SUCCESS },
		GetPciInfoFunc:        func() (nvml.PciInfo, nvml.Return) { return pci, nvml.SUCCESS },
		GetMemoryInfoFunc:     func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 141 << 30}, nvml.SUCCESS },
		GetBAR1MemoryInfoFunc: func() (nvml.BAR1Memory, nvml.Return) { return nvml.BAR1Memory{Bar1Total: 256 << 30}, nvml.SUCCESS },
	}
}

func TestQuery(t *testing.T) {
	lib := library(device())
	s, err := query(lib)
	require.NoError(t, err)
	require.Equal(t, System{Driver: "570.124.06", CUDA: "12.8", GPUs: []GPU{
		{Name: "NVIDIA H200", UUID: "GPU-1", BusID: "00000000:1B:00.0", Memory: 141 << 30, BAR1: 256 << 30},
	}}, s)
	require.Len(t, lib.ShutdownCalls(), 1)
}

// TestQueryOptional: an old driver does not know everything.
func TestQueryOptional(t *testing.T) {
	d := device()
	d.GetBAR1MemoryInfoFunc = func() (nvml.BAR1Memory, nvml.Return) { return nvml.BAR1Memory{}, nvml.ERROR_NOT_SUPPORTED }
	lib := library(d)
	lib.SystemGetCudaDriverVersionFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_FUNCTION_NOT_FOUND }
	s, err := query(lib)
	require.NoError(t, err)
	require.Empty(t, s.CUDA)
	require.Zero(t, s.GPUs[0].BAR1)
}

func TestQueryErrors(t *testing.T) {
	lib := library(device())
	lib.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
	_, err := query(lib)
	require.ErrorIs(t, err, ErrNotSupported)
	require.ErrorContains(t, err, "install the NVIDIA driver")
	require.Empty(t, lib.ShutdownCalls(), "nothing was begun")

	lib.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED }
	_, err = query(lib)
	require.ErrorIs(t, err, nvml.ERROR_DRIVER_NOT_LOADED)
	require.ErrorContains(t, err, "; modprobe nvidia")

	d := device()
	d.GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }
	lib = library(d)
	lib.ShutdownFunc = func() nvml.Return { return nvml.ERROR_UNKNOWN }
	_, err = query(lib)
	require.ErrorContains(t, err, "nvml: device 0:")
	require.True(t, errors.Is(err, nvml.ERROR_GPU_IS_LOST) && errors.Is(err, nvml.ERROR_UNKNOWN), err)
}
