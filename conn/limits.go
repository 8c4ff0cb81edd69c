package conn

import "fmt"

// Limits is what a side can take, as its Hello advertises it. A peer's Limits
// come from the wire: Check them before use.
type Limits struct {
	ControlDepth int    // receives posted on the control lane
	BulkDepth    int    // receives that may be outstanding on one bulk lane
	MaxMsg       uint32 // bytes in one message on a bulk lane
	StagingBlock uint32 // bytes in one staging block
	StreamBlock  uint32 // bytes in one message of a stream lane that is a queue pair
}

// Bounds on what a peer may advertise. The lower ones keep the protocol alive,
// the upper ones keep a peer from making this side allocate.
const (
	minControlDepth = 8
	minBulkDepth    = 2
	maxDepth        = 1 << 16
	minMaxMsg       = minStagingBlock
	minStreamBlock  = 4 << 10
)

// Check says whether a peer's limits can be worked with, naming the one that
// cannot.
func (l Limits) Check() error {
	switch {
	case l.ControlDepth < minControlDepth || l.ControlDepth > maxDepth:
		return fmt.Errorf("the peer's control depth %d is outside %d to %d", l.ControlDepth, minControlDepth, maxDepth)
	case l.BulkDepth < minBulkDepth || l.BulkDepth > maxDepth:
		return fmt.Errorf("the peer's bulk depth %d is outside %d to %d", l.BulkDepth, minBulkDepth, maxDepth)
	case l.MaxMsg < minMaxMsg:
		return fmt.Errorf("the peer's largest message %d is below %d bytes", l.MaxMsg, minMaxMsg)
	case l.StagingBlock < minStagingBlock:
		return fmt.Errorf("the peer's staging block %d is below %d bytes", l.StagingBlock, minStagingBlock)
	case l.StreamBlock < minStreamBlock:
		return fmt.Errorf("the peer's stream block %d is below %d bytes", l.StreamBlock, minStreamBlock)
	}
	return nil
}
