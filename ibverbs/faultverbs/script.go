package faultverbs

import (
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// Never, returned by Script.Hold, keeps a completion and all behind it in the
// same queue away until the queue pair is destroyed.
const Never time.Duration = -1

// Script says what goes wrong on a Device. The zero value of a field means
// that nothing of the kind does. A Script must not change after Wrap.
//
// The functions are called one at a time, from any goroutine and with locks
// held: they must not call the device or anything made from it.
type Script struct {
	// Refuse is asked before each call. An error refuses it; the caller sees
	// it inside an *ibverbs.Error. See Nth and FirstOf.
	Refuse func(Call) error

	// Hold says for how long a completion is kept away, counted from when
	// the device had it and somebody polled or was armed. Order within one
	// queue of a queue pair is kept; everything else may overtake. See
	// HoldSends, HoldRecvs, HoldFlushes and Random.
	Hold func(Completion) time.Duration
	// Batch makes completions appear at multiples of this time only, those
	// of all queues at once.
	Batch time.Duration
	// MaxPoll bounds what one Poll returns.
	MaxPoll int

	// Spurious says whether arming a queue raises an event without cause.
	// Like any event it uses the arming up.
	Spurious func(Event) bool
	// EventDelay says how late an event is raised, so that one event covers
	// what completes meanwhile.
	EventDelay func(Event) time.Duration

	// Junk, if not zero, seeds what is written to every field of a completion
	// that is not valid: all but WRID, Status, QPNum and VendorErr of an error,
	// ByteLen of a send, Imm of a receive without immediate.
	Junk uint64

	// Limits lowers what QueryDevice tells and the create calls take. Zero
	// fields lower nothing.
	Limits ibverbs.DeviceAttr
	// SendDepth and RecvDepth bound the requests outstanding on one queue,
	// whatever depth the queue pair was created with.
	SendDepth, RecvDepth int
}

// Op names a call that a Script can refuse.
type Op string

// The calls, by the names that errors show, Modify by target state.
const (
	OpOpen              Op = "open_device"
	OpQueryDevice       Op = "query_device"
	OpAllocPD           Op = "alloc_pd"
	OpCreateCompChannel Op = "create_comp_channel"
	OpCreateCQ          Op = "create_cq"
	OpRegMR             Op = "reg_mr"
	OpCreateQP          Op = "create_qp"
	OpModifyInit        Op = "modify_qp INIT"
	OpModifyRTR         Op = "modify_qp RTR"
	OpModifyRTS         Op = "modify_qp RTS"
	OpModifyErr         Op = "modify_qp ERR"
	OpPostSend          Op = "post_send"
	OpPostRecv          Op = "post_recv"
	OpReqNotify         Op = "req_notify_cq"
	OpPoll              Op = "poll_cq"
)

// SetupOps are the calls between opening a device and a connected queue pair
// with receives posted, in the order in which they usually come.
func SetupOps() []Op {
	return []Op{OpOpen, OpQueryDevice, OpAllocPD, OpCreateCompChannel, OpCreateCQ, OpRegMR, OpCreateQP,
		OpModifyInit, OpPostRecv, OpModifyRTR, OpModifyRTS, OpReqNotify}
}

// Call is one call on a Device or on what was made from it.
type Call struct {
	Op Op
	N  int // which call of its Op on the Device, from 1
	QP int // which queue pair of the Device, in order of creation from 1; 0 if none
}

// Completion is a completion that the device has delivered and the caller has
// not seen.
type Completion struct {
	QP     int  // which queue pair of the Device, in order of creation from 1
	Recv   bool // of a receive; known for errors too
	N      int  // which completion of that queue, from 1
	WRID   uint64
	Status ibverbs.WCStatus
}

// Event is an arming of a completion queue, or the event that follows.
type Event struct {
	CQ int // which queue of the Device, in order of creation from 1
	N  int // which arming or event of that queue, from 1
}
