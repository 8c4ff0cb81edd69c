package gpubuf

import (
	"errors"
	"fmt"
	"time"
)

// regionUnit is the unit of everything that a pool takes from its device.
const regionUnit = 2 << 20

const (
	defaultLimit      = 4 << 30
	defaultRegionSize = 64 << 20
	defaultMaxWait    = 30 * time.Second
	maxLimit          = 1 << 60 // so that sums of sizes cannot overflow
)

// Config configures a Pool. A zero field means its default; sizes are bytes and
// multiples of 2 MiB. It is not used after NewPool.
type Config struct {
	// Device is where the memory comes from. It must stay open until the pool
	// is closed, and comparable with ==. Required.
	Device Device
	// Limit is the most that the pool takes from the device; 0 means 4 GiB.
	Limit int64
	// RegionSize is how much the pool takes at a time; larger requests get a
	// region of their own size. 0 means 64 MiB, or Limit if that is less.
	RegionSize int64
	// MaxWait is how long a request may wait for memory, whatever its context
	// allows. 0 means 30 s; negative means that requests never wait.
	MaxWait time.Duration
	// ReplyReserve is the part of Limit that only requests with
	// AllocRequest.Reply may use, so that calls can end, and give memory back,
	// while others wait for it. It has regions of its own. 0 means an eighth of
	// Limit, rounded down to 2 MiB; negative means none.
	ReplyReserve int64
}

// withDefaults returns the configuration with every field set, or says what is
// wrong with it.
func (c Config) withDefaults() (Config, error) {
	if c.Device == nil {
		return c, errors.New("gpubuf: new pool: Config.Device is nil; give one, such as host.New()")
	}
	if c.Limit == 0 {
		c.Limit = defaultLimit
	}
	if c.RegionSize == 0 {
		c.RegionSize = min(defaultRegionSize, c.Limit)
	}
	switch {
	case c.ReplyReserve == 0:
		c.ReplyReserve = c.Limit / 8 / regionUnit * regionUnit
	case c.ReplyReserve < 0:
		c.ReplyReserve = 0
	}
	if c.MaxWait == 0 {
		c.MaxWait = defaultMaxWait
	}
	return c, c.check()
}

func (c Config) check() error {
	name := c.Device.Name()
	if c.Limit < regionUnit || c.Limit%regionUnit != 0 || c.Limit > maxLimit {
		return fmt.Errorf("gpubuf: new pool %s: Config.Limit is %d bytes; want a positive multiple of 2 MiB, at most 2^60", name, c.Limit)
	}
	if c.RegionSize < regionUnit || c.RegionSize%regionUnit != 0 || c.RegionSize > c.Limit {
		return fmt.Errorf("gpubuf: new pool %s: Config.RegionSize is %d bytes; want a positive multiple of 2 MiB, at most the limit of %d", name, c.RegionSize, c.Limit)
	}
	if c.ReplyReserve%regionUnit != 0 || c.ReplyReserve >= c.Limit {
		return fmt.Errorf("gpubuf: new pool %s: Config.ReplyReserve is %d bytes; want a multiple of 2 MiB below the limit of %d", name, c.ReplyReserve, c.Limit)
	}
	return nil
}
