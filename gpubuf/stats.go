package gpubuf

// Stats are a Pool's numbers at one moment. Sizes are bytes.
type Stats struct {
	Limit     int64 // the most that the pool takes from its device
	Reserved  int64 // taken from the device now
	Used      int64 // in use or promised to a request, rounded up to 256
	HighWater int64 // the most that was ever in use
	Slices    int   // slice handles that exist
	Waiting   int   // requests that wait for memory
	Regions   int   // regions that exist
	Allocs    int64 // slices handed out by Alloc and AllocAll so far
	Failures  int64 // calls of Alloc and AllocAll that failed so far
}

// Stats returns the pool's numbers.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{
		Limit:     p.cfg.Limit,
		Reserved:  p.reserved,
		Used:      p.used,
		HighWater: p.high,
		Slices:    int(p.slices.Load()),
		Waiting:   p.waiting(),
		Regions:   len(p.regions[shareCommon]) + len(p.regions[shareReply]),
		Allocs:    p.allocs,
		Failures:  p.failures,
	}
}
