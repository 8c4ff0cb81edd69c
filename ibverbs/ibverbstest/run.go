package ibverbstest

import (
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// Pair is two open contexts between whose queue pairs messages can flow. The
// suite closes the contexts, which may be one and the same. What lies below
// them is the maker's to close, in t.Cleanup.
type Pair struct {
	A, B ibverbs.Context

	// Link does what the provider needs beyond Modify before a, of A, and
	// b, of B, can be connected. Both are in state INIT. It is called once.
	Link func(a, b ibverbs.QP) error

	// Attr completes the attributes of a transition with those that queue
	// pairs of a FabricContext need. It may be nil.
	Attr func(ibverbs.QPAttr, ibverbs.QPAttrMask) (ibverbs.QPAttr, ibverbs.QPAttrMask)

	// FreesEarly says that the slot of an unsignalled send is free as soon as
	// the send was executed, not only at the next completion.
	FreesEarly bool

	// Accept has statuses of the specification and what the device says instead.
	Accept map[ibverbs.WCStatus]ibverbs.WCStatus

	// Skip names tests that the provider cannot pass, with the reason.
	Skip map[string]string
}

var tests = []struct {
	name string
	run  func(*testing.T, Pair)
}{
	{"Device", testDevice},
	{"RegMR", testRegMR},
	{"CreateErrors", testCreateErrors},
	{"States", testStates},
	{"StateErrors", testStateErrors},
	{"PostStates", testPostStates},
	{"Order", testOrder},
	{"BothWays", testBothWays},
	{"ScatterGather", testScatterGather},
	{"Large", testLarge},
	{"Immediate", testImmediate},
	{"ZeroLength", testZeroLength},
	{"PostErrors", testPostErrors},
	{"SendQueueFull", testSendQueueFull},
	{"RecvQueueFull", testRecvQueueFull},
	{"Unsignaled", testUnsignaled},
	{"FlushOrder", testFlushOrder},
	{"FlushUnsignaled", testFlushUnsignaled},
	{"ReceiverNotReady", testReceiverNotReady},
	{"TooLong", testTooLong},
	{"SendBadKey", testSendBadKey},
	{"SendOutOfRange", testSendOutOfRange},
	{"RecvBadKey", testRecvBadKey},
	{"RecvOutOfRange", testRecvOutOfRange},
	{"RecvReadOnly", testRecvReadOnly},
	{"MessageTooBig", testMessageTooBig},
	{"PeerInError", testPeerInError},
	{"NotReadyLater", testNotReadyLater},
	{"SendForeignKey", testSendForeignKey},
	{"RecvForeignKey", testRecvForeignKey},
	{"Deregistered", testDeregistered},
	{"TooLongLarge", testTooLongLarge},
	{"Notify", testNotify},
	{"NotifyMissed", testNotifyMissed},
	{"NotifySolicited", testNotifySolicited},
	{"NotifyWithoutChannel", testNotifyWithoutChannel},
	{"SharedCQ", testSharedCQ},
	{"TwoCQsOneChannel", testTwoCQsOneChannel},
	{"Overrun", testOverrun},
	{"WaitClosed", testWaitClosed},
	{"WaitInterrupted", testWaitInterrupted},
	{"DestroyOutstanding", testDestroyOutstanding},
	{"CloseOrder", testCloseOrder},
	{"Idempotent", testIdempotent},
	{"AfterDestroy", testAfterDestroy},
	{"Concurrent", testConcurrent},
	{"Ports", testPorts},
	{"AsyncClosed", testAsyncClosed},
	{"Iova", testIova},
}

// Run runs the suite. newPair is called once for each test.
func Run(t *testing.T, newPair func(t *testing.T) Pair) {
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPair(t)
			closeAtEnd(t, p.A.Close)
			closeAtEnd(t, p.B.Close)
			if reason := p.Skip[tt.name]; reason != "" {
				t.Skip(reason)
			}
			tt.run(t, p)
		})
	}
}
