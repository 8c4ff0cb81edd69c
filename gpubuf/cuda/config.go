package cuda

import (
	"fmt"
	"runtime"
	"time"
)

// Config configures a Device. Nil and zero values mean the defaults. It is not
// used after New.
type Config struct {
	// Index is the GPU's ordinal among those that the driver shows this
	// process; CUDA_VISIBLE_DEVICES changes it. It is not used with UUID.
	Index int
	// UUID names the GPU wherever it is: "GPU-4d6f...", or as much of the
	// beginning as is unambiguous.
	UUID string
	// Library is the path of the driver library. It rules out all others.
	// Empty means the usual places, "libcuda.so.1" first.
	Library string
	// Lanes is how many synchronous copies run at once, further ones wait.
	// Each has 2 MiB of page-locked memory. 0 means 4.
	Lanes int
	// Streams is how many streams background copies are spread over, for
	// each direction. 0 means 2.
	Streams int
	// Waiters is how many goroutines may block a thread each while they wait
	// for background copies; further ones wait for those. 0 means 4.
	Waiters int
	// Spin is how long Copy.Wait polls before it blocks. 0 means 20 us, or not
	// at all where GOMAXPROCS is 2 or less; negative means not at all.
	Spin time.Duration
}

// settle returns the configuration with its defaults.
func settle(cfg *Config) (Config, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	for _, f := range []struct {
		name  string
		value *int
		zero  int
	}{{"Lanes", &c.Lanes, 4}, {"Streams", &c.Streams, 2}, {"Waiters", &c.Waiters, 4}} {
		if *f.value < 0 {
			return c, fmt.Errorf("cuda: new: Config.%s is %d; want zero (%d) or more", f.name, *f.value, f.zero)
		}
		if *f.value == 0 {
			*f.value = f.zero
		}
	}
	if c.Spin == 0 && runtime.GOMAXPROCS(0) > 2 {
		c.Spin = 20 * time.Microsecond
	}
	return c, nil
}
