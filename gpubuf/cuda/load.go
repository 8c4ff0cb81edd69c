package cuda

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// candidates returns where the driver library may be, in order. The dynamic
// loader looks for the first two; the rest are folders in which containers, WSL
// and distributions put the driver without telling the loader.
func candidates() []string {
	return []string{
		"libcuda.so.1",
		"libcuda.so",
		"/usr/local/nvidia/lib64/libcuda.so.1",
		"/usr/lib/wsl/lib/libcuda.so.1",
		"/usr/lib64/nvidia/libcuda.so.1",
		"/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1",
		"/run/opengl-driver/lib/libcuda.so.1",
	}
}

// load opens and initialises the driver and returns it with its number of GPUs,
// at least one. A path rules out all other candidates.
func load(path string) (driver, int, error) {
	paths := candidates()
	if path != "" {
		paths = []string{path}
	}
	var tried []string
	for _, p := range paths {
		drv, err := open(p)
		if errors.Is(err, gpubuf.ErrNotSupported) {
			return nil, 0, fmt.Errorf("cuda: load driver %w", err)
		}
		if err != nil {
			tried = append(tried, err.Error())
			continue
		}
		n, r := drv.deviceCount()
		if r.code() == codeStubLibrary { // the toolkit's, for linking alone
			tried = append(tried, p+": a stub, no driver")
			drv.unload()
			continue
		}
		return started(drv, n, r)
	}
	return nil, 0, fmt.Errorf("cuda: load driver: %w (%s); install the NVIDIA driver, give the container the GPU (docker run --gpus all), or in a program name the library in cuda.Config.Library",
		gpubuf.ErrNoDevice, strings.Join(tried, "; "))
}

func started(drv driver, n int, r result) (driver, int, error) {
	if r != 0 {
		err := newError(drv, "cuda", r, "")
		drv.unload()
		return nil, 0, err
	}
	if n == 0 {
		drv.unload()
		return nil, 0, fmt.Errorf("cuda: %w: the driver shows no GPU; see nvidia-smi -L and CUDA_VISIBLE_DEVICES", gpubuf.ErrNoDevice)
	}
	return drv, n, nil
}
