package ibverbs

// CompChannel delivers completion events (struct ibv_comp_channel).
type CompChannel interface {
	// Wait blocks until a queue that was armed by ReqNotify has an event,
	// acknowledges the event and returns the queue (ibv_get_cq_event(3)
	// and ibv_ack_cq_events(3) in one). Events may be spurious or
	// coalesced: arm again, then poll until empty. After Close it returns
	// ErrClosed.
	Wait() (CQ, error)
	// Interrupt has one Wait, that which is under way or else the next,
	// return ErrInterrupted. Interrupts that no Wait has met are one.
	Interrupt()
	// Close unblocks Wait, for good, and destroys the channel once none of
	// its queues is left. Those that are left raise no more events.
	Close() error
}

// CQ is a completion queue (struct ibv_cq).
type CQ interface {
	// Poll takes up to len(wc) completions without blocking and returns
	// their number (ibv_poll_cq(3)). An error means that the queue is dead,
	// by overrun for example.
	Poll(wc []WC) (int, error)
	// ReqNotify asks for one event at the next completion
	// (ibv_req_notify_cq(3)). It is one-shot and edge-triggered:
	// completions that are already queued raise none, so poll once more
	// after arming. With solicitedOnly, sends that succeed may raise none,
	// nor receives whose sender has not set SendSolicited; what fails raises
	// one all the same. A queue that is armed for any completion stays so.
	ReqNotify(solicitedOnly bool) error
	// Destroy destroys the queue. It fails with ErrBusy while QPs use it.
	Destroy() error
}

// HandledCQ is a CQ that calls its user where others send events to a channel,
// which saves a goroutine and its wake-ups.
type HandledCQ interface {
	CQ
	// SetCompHandler has f called when completions have been queued since its
	// last call, and ends what events there were. f runs on goroutines of the
	// provider, without a lock held, maybe on several at once; while it runs
	// other messages may wait, so it must not block. It polls the queue until
	// empty. Sends that PostSend completes before it returns call nothing: who
	// posts polls afterwards. SetCompHandler is called before anything is
	// posted, or followed by a poll, and again with nil to end the calls; one
	// that runs then may still be running.
	SetCompHandler(f func())
}

// WC is a work completion (struct ibv_wc). If Status is not WCSuccess, only
// WRID, Status, QPNum and VendorErr are valid.
type WC struct {
	WRID      uint64
	Status    WCStatus
	Opcode    WCOpcode
	VendorErr uint32
	ByteLen   uint32 // bytes received; valid for receives
	Imm       uint32 // immediate data in host byte order; valid with WCWithImm
	QPNum     uint32
	Flags     WCFlags
}

// WCFlags are the flags of a completion (enum ibv_wc_flags).
type WCFlags uint32

// WCWithImm says that Imm is valid.
const WCWithImm WCFlags = 2

// WCOpcode is the operation that completed (enum ibv_wc_opcode).
type WCOpcode uint32

// Completion opcodes.
const (
	WCSend WCOpcode = 0
	WCRecv WCOpcode = 128
)

// String returns the C name.
func (o WCOpcode) String() string {
	switch o {
	case WCSend:
		return "IBV_WC_SEND"
	case WCRecv:
		return "IBV_WC_RECV"
	}
	return unknown("IBV_WC", uint32(o))
}
