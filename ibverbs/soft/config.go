package soft

import "time"

// Limits that are not configurable.
const (
	maxCQE    = 1 << 22
	maxMRSize = 1 << 40
)

// Config sets the limits of a software device. The zero value of a field, or a
// nil Config, means the default. A Config must not change after use.
type Config struct {
	MaxQPWR  int    // work requests per send or receive queue; default 16384
	MaxSGE   int    // scatter/gather entries per work request; default 16
	MaxMsgSz uint32 // bytes per message; default 1 GiB

	// StallTimeout bounds every wait for the peer, as retry_cnt and timeout
	// do on hardware: for a write that a queue pair in ERR must get back,
	// and for a queue pair that a message found in INIT to reach RTR.
	// Default 1 s; negative means no bound.
	StallTimeout time.Duration
}

// withDefaults returns a copy of c with every default filled in.
func (c *Config) withDefaults() Config {
	var d Config
	if c != nil {
		d = *c
	}
	if d.MaxQPWR <= 0 {
		d.MaxQPWR = 16384
	}
	if d.MaxSGE <= 0 {
		d.MaxSGE = 16
	}
	if d.MaxMsgSz == 0 {
		d.MaxMsgSz = 1 << 30
	}
	if d.StallTimeout == 0 {
		d.StallTimeout = time.Second
	}
	return d
}
