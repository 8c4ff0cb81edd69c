package ibverbs

// QP is a reliable-connected queue pair (struct ibv_qp of type IBV_QPT_RC).
type QP interface {
	// Num is the queue pair's number, 24 bits.
	Num() uint32
	// State is the current state.
	State() QPState
	// Modify changes the attributes that mask names (ibv_modify_qp(3)).
	// mask always has QPAttrState. The states go RESET -> INIT -> RTR ->
	// RTS; RTR needs DestQPNum and RQPSN too, RTS needs SQPSN, and more or
	// less than that is ErrInvalid; queue pairs of a FabricContext need the
	// network's attributes too. Any state may go to ERR, which flushes
	// both queues, each in order.
	Modify(attr QPAttr, mask QPAttrMask) error
	// PostSend queues wrs in order and returns how many were taken
	// (ibv_post_send(3)). On an error wrs[n] is the one at fault and it
	// and those behind it were not queued. A full queue is ErrOutOfMemory.
	// It wants state RTS; in ERR requests are taken and flushed.
	PostSend(wrs []SendWR) (n int, err error)
	// PostRecv queues wrs in order, from state INIT on
	// (ibv_post_recv(3)). Results as for PostSend; in ERR requests are
	// taken and flushed.
	PostRecv(wrs []RecvWR) (n int, err error)
	// Destroy destroys the queue pair (ibv_destroy_qp(3)). Requests that
	// have not completed yet never will, and no memory of theirs is
	// touched once it returns.
	Destroy() error
}

// QPInitAttr says what a queue pair is made of (struct ibv_qp_init_attr).
type QPInitAttr struct {
	SendCQ    CQ
	RecvCQ    CQ
	MaxSendWR int // depth of the send queue
	MaxRecvWR int // depth of the receive queue
}

// QPAttr are the attributes of a queue pair (struct ibv_qp_attr). Those from
// PortNum on are for queue pairs of a FabricContext, which want them in the
// transitions that ibv_modify_qp(3) lists for IBV_QPT_RC; others refuse them.
type QPAttr struct {
	State     QPState
	DestQPNum uint32
	RQPSN     uint32
	SQPSN     uint32

	PortNum         uint8  // INIT: the local port, from 1
	PKeyIndex       uint16 // INIT
	AccessFlags     Access // INIT: what the peer may do; 0, since no remote key exists
	PathMTU         MTU    // RTR: the smaller of both ports'
	AH              AHAttr // RTR: the way to the peer
	MaxDestRDAtomic uint8  // RTR: 0, since there are no reads
	MinRNRTimer     uint8  // RTR: IBTA's code of a delay; 12 is 0.64 ms
	Timeout         uint8  // RTS: 4.096 us * 2^Timeout until a packet is sent again
	RetryCnt        uint8  // RTS: how often, at most 7
	RNRRetry        uint8  // RTS: how often a peer may have no receive; 7 is for ever
	MaxRDAtomic     uint8  // RTS: 0, since there are no reads
}

// QPAttrMask says which fields of a QPAttr count (enum ibv_qp_attr_mask).
type QPAttrMask uint32

// Attribute masks.
const (
	QPAttrState           QPAttrMask = 1 << 0
	QPAttrAccessFlags     QPAttrMask = 1 << 3
	QPAttrPKeyIndex       QPAttrMask = 1 << 4
	QPAttrPort            QPAttrMask = 1 << 5
	QPAttrAV              QPAttrMask = 1 << 7
	QPAttrPathMTU         QPAttrMask = 1 << 8
	QPAttrTimeout         QPAttrMask = 1 << 9
	QPAttrRetryCnt        QPAttrMask = 1 << 10
	QPAttrRNRRetry        QPAttrMask = 1 << 11
	QPAttrRQPSN           QPAttrMask = 1 << 12
	QPAttrMaxQPRDAtomic   QPAttrMask = 1 << 13
	QPAttrMinRNRTimer     QPAttrMask = 1 << 15
	QPAttrSQPSN           QPAttrMask = 1 << 16
	QPAttrMaxDestRDAtomic QPAttrMask = 1 << 17
	QPAttrDestQPNum       QPAttrMask = 1 << 20
)

// QPState is the state of a queue pair (enum ibv_qp_state).
type QPState uint32

// Queue pair states.
const (
	QPReset QPState = iota
	QPInit
	QPRTR
	QPRTS
	QPSQD
	QPSQE
	QPErr
)

var qpStateNames = [...]string{
	"IBV_QPS_RESET", "IBV_QPS_INIT", "IBV_QPS_RTR", "IBV_QPS_RTS", "IBV_QPS_SQD", "IBV_QPS_SQE", "IBV_QPS_ERR",
}

// String returns the C name.
func (s QPState) String() string {
	if int(s) < len(qpStateNames) {
		return qpStateNames[s]
	}
	return unknown("IBV_QPS", uint32(s))
}

// SGE names a piece of registered memory (struct ibv_sge).
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// SendWR is a send work request (struct ibv_send_wr).
type SendWR struct {
	WRID   uint64
	SGList []SGE // not retained; the memory it names is, see the package comment
	Opcode WROpcode
	Flags  SendFlags
	Imm    uint32 // immediate data in host byte order, for WRSendWithImm
}

// RecvWR is a receive work request (struct ibv_recv_wr).
type RecvWR struct {
	WRID   uint64
	SGList []SGE // not retained; the memory it names is, see the package comment
}

// WROpcode is the operation of a send request (enum ibv_wr_opcode).
type WROpcode uint32

// Send opcodes.
const (
	WRSend        WROpcode = 2
	WRSendWithImm WROpcode = 3
)

// String returns the C name.
func (o WROpcode) String() string {
	switch o {
	case WRSend:
		return "IBV_WR_SEND"
	case WRSendWithImm:
		return "IBV_WR_SEND_WITH_IMM"
	}
	return unknown("IBV_WR", uint32(o))
}

// SendFlags modify a send request (enum ibv_send_flags).
type SendFlags uint32

// SendSignaled asks for a completion. Requests that fail or are flushed
// complete with or without it; the slots of unsignalled ones are freed by the
// next completion. Unsignalled requests that were executed before the queue
// pair went to ERR never complete: to account for them, post one more there and
// wait for its flush.
const SendSignaled SendFlags = 1 << 1

// SendSolicited has the peer's receive raise an event where its queue is armed
// for solicited completions only (CQ.ReqNotify).
const SendSolicited SendFlags = 1 << 2
