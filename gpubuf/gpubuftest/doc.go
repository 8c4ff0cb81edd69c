// Package gpubuftest holds the conformance suites of package gpubuf: what every
// gpubuf.Device must do, and what a gpubuf.Pool does over any of them.
//
// # Usage
//
//	func TestConformance(t *testing.T) {
//		newDevice := func(t *testing.T) gpubuf.Device {
//			d, err := emu.New(nil)
//			require.NoError(t, err)
//			return d
//		}
//		gpubuftest.RunDevice(t, newDevice)
//		gpubuftest.RunPool(t, newDevice)
//	}
//
// RunPinned does the same for a device that is a gpubuf.PinnedDevice, RunStartCopy
// for a gpubuf.StartCopier. GPUs are such devices that need no GPU.
//
// newDevice returns a device that nothing else uses; the suites close it. Two
// devices of one test may be the same hardware.
//
// # Limitations
//
// The suites need about 512 MiB of device memory, and 5 GiB of it for the test
// of large slices, which is skipped where the device has less.
package gpubuftest
