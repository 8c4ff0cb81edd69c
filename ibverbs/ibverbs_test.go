package ibverbs

import (
	"net"
	"testing"

	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestNames pins the numbers of the C enums to their names.
func TestNames(t *testing.T) {
	for want, got := range map[string]string{
		"IBV_WC_SUCCESS":           WCStatus(0).String(),
		"IBV_WC_WR_FLUSH_ERR":      WCStatus(5).String(),
		"IBV_WC_REM_INV_REQ_ERR":   WCStatus(9).String(),
		"IBV_WC_REM_OP_ERR":        WCStatus(11).String(),
		"IBV_WC_RETRY_EXC_ERR":     WCStatus(12).String(),
		"IBV_WC_RNR_RETRY_EXC_ERR": WCStatus(13).String(),
		"IBV_WC_GENERAL_ERR":       WCStatus(21).String(),
		"IBV_WC(22)":               WCStatus(22).String(),
		"IBV_QPS_RESET":            QPState(0).String(),
		"IBV_QPS_RTS":              QPState(3).String(),
		"IBV_QPS_ERR":              QPState(6).String(),
		"IBV_QPS(7)":               QPState(7).String(),
		"IBV_WR_SEND":              WROpcode(2).String(),
		"IBV_WR_SEND_WITH_IMM":     WROpcode(3).String(),
		"IBV_WR(9)":                WROpcode(9).String(),
		"IBV_WC_SEND":              WCOpcode(0).String(),
		"IBV_WC_RECV":              WCOpcode(128).String(),
		"IBV_WC(1)":                WCOpcode(1).String(),
	} {
		require.Equal(t, want, got)
	}
}

func TestErrors(t *testing.T) {
	err := error(&Error{Op: "post_send", Subject: "soft0 qp 17", Err: ErrOutOfMemory, Remedy: "poll its completions"})
	require.EqualError(t, err, "ibverbs: post_send soft0 qp 17: cannot allocate memory; poll its completions")
	require.ErrorIs(t, err, ErrOutOfMemory)
	require.ErrorIs(t, ErrClosed, net.ErrClosed)
	require.EqualError(t, &WCError{Status: WCRetryExcErr, VendorErr: 0x81, QPNum: 5},
		"ibverbs: qp 5: completion with IBV_WC_RETRY_EXC_ERR (vendor error 0x81)")
}
