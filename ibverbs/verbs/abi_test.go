package verbs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/internal/skip"
	"github.com/stretchr/testify/require"
)

// layouts lists the fields, in C's syntax, of each struct that this package
// declares anew. Those with a star are declared whole: their sizes are equal.
const layouts = `
context: device ops cmd_fd async_fd num_comp_vectors
context_ops*: poll_cq req_notify_cq post_send post_recv
device_attr*: fw_ver node_guid sys_image_guid max_mr_size page_size_cap vendor_id vendor_part_id hw_ver max_qp max_qp_wr device_cap_flags max_sge max_sge_rd max_cq max_cqe max_pkeys local_ca_ack_delay phys_port_cnt
port_attr*: state max_mtu active_mtu gid_tbl_len port_cap_flags max_msg_sz bad_pkey_cntr qkey_viol_cntr pkey_tbl_len lid sm_lid lmc max_vl_num sm_sl subnet_timeout init_type_reply active_width active_speed phys_state link_layer flags port_cap_flags2
gid_entry*: gid gid_index port_num gid_type ndev_ifindex
mr*: context pd addr length handle lkey rkey
comp_channel*: context fd refcnt
cq: context channel cq_context handle cqe
qp: context qp_context pd send_cq recv_cq srq handle qp_num
qp_cap*: max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data
qp_init_attr*: qp_context send_cq recv_cq srq cap qp_type sq_sig_all
global_route*: dgid flow_label sgid_index hop_limit traffic_class
ah_attr*: grh dlid sl src_path_bits static_rate is_global port_num
qp_attr*: qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num qp_access_flags cap ah_attr alt_ah_attr pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout rate_limit
sge*: addr length lkey
send_wr*: wr_id next sg_list num_sge opcode send_flags imm_data
recv_wr*: wr_id next sg_list num_sge
wc*: wr_id status opcode vendor_err byte_len imm_data qp_num src_qp wc_flags pkey_index slid sl dlid_path_bits
async_event*: element element.cq element.qp element.port_num event_type
`

// constants are the enumerators of shim.h.
const constants = "QPT_RC QP_STATE EVENT_CQ_ERR EVENT_QP_FATAL EVENT_PATH_MIG_ERR EVENT_DEVICE_FATAL EVENT_PORT_ACTIVE " +
	"EVENT_SM_CHANGE EVENT_QP_LAST_WQE_REACHED EVENT_CLIENT_REREGISTER EVENT_GID_CHANGE"

// masks are the constants of package ibverbs whose String is not the C name.
var masks = map[string]uint32{
	"IBV_ACCESS_LOCAL_WRITE":    uint32(ibverbs.AccessLocalWrite),
	"IBV_SEND_SIGNALED":         uint32(ibverbs.SendSignaled),
	"IBV_SEND_SOLICITED":        uint32(ibverbs.SendSolicited),
	"IBV_WC_WITH_IMM":           uint32(ibverbs.WCWithImm),
	"IBV_MTU_256":               uint32(ibverbs.MTU256),
	"IBV_MTU_512":               uint32(ibverbs.MTU512),
	"IBV_MTU_1024":              uint32(ibverbs.MTU1024),
	"IBV_MTU_2048":              uint32(ibverbs.MTU2048),
	"IBV_MTU_4096":              uint32(ibverbs.MTU4096),
	"IBV_GID_TYPE_IB":           uint32(ibverbs.GIDTypeIB),
	"IBV_GID_TYPE_ROCE_V1":      uint32(ibverbs.GIDTypeRoCEv1),
	"IBV_GID_TYPE_ROCE_V2":      uint32(ibverbs.GIDTypeRoCEv2),
	"IBV_QP_STATE":              uint32(ibverbs.QPAttrState),
	"IBV_QP_ACCESS_FLAGS":       uint32(ibverbs.QPAttrAccessFlags),
	"IBV_QP_PKEY_INDEX":         uint32(ibverbs.QPAttrPKeyIndex),
	"IBV_QP_PORT":               uint32(ibverbs.QPAttrPort),
	"IBV_QP_AV":                 uint32(ibverbs.QPAttrAV),
	"IBV_QP_PATH_MTU":           uint32(ibverbs.QPAttrPathMTU),
	"IBV_QP_TIMEOUT":            uint32(ibverbs.QPAttrTimeout),
	"IBV_QP_RETRY_CNT":          uint32(ibverbs.QPAttrRetryCnt),
	"IBV_QP_RNR_RETRY":          uint32(ibverbs.QPAttrRNRRetry),
	"IBV_QP_RQ_PSN":             uint32(ibverbs.QPAttrRQPSN),
	"IBV_QP_MAX_QP_RD_ATOMIC":   uint32(ibverbs.QPAttrMaxQPRDAtomic),
	"IBV_QP_MIN_RNR_TIMER":      uint32(ibverbs.QPAttrMinRNRTimer),
	"IBV_QP_SQ_PSN":             uint32(ibverbs.QPAttrSQPSN),
	"IBV_QP_MAX_DEST_RD_ATOMIC": uint32(ibverbs.QPAttrMaxDestRDAtomic),
	"IBV_QP_DEST_QPN":           uint32(ibverbs.QPAttrDestQPNum),
}

// TestABI compiles assertions that compare shim.h and package ibverbs with the
// system's headers.
func TestABI(t *testing.T) {
	requireCC(t)
	if _, err := compile(t, "#include <infiniband/verbs.h>\n"); err != nil {
		skip.Missing(t, "verbs-headers", err, "install them (Debian: libibverbs-dev)")
	}
	out, err := compile(t, assertions())
	require.NoError(t, err, out)

	// An assertion that does not hold is noticed.
	wrong := strings.Replace(assertions(), "offsetof(struct gv_wc, qp_num)", "offsetof(struct gv_wc, src_qp)", 1)
	out, err = compile(t, wrong)
	require.Error(t, err)
	require.Contains(t, out, "wc.qp_num")
}

// assertions writes a C file that compiles if everything agrees.
func assertions() string {
	var b strings.Builder
	b.WriteString("#include <infiniband/verbs.h>\n#include \"shim.h\"\n")
	equal := func(what, ours, theirs string) {
		fmt.Fprintf(&b, "_Static_assert((long)(%s) == (long)(%s), \"%s\");\n", ours, theirs, what)
	}
	for line := range strings.Lines(strings.TrimSpace(layouts)) {
		name, fields, _ := strings.Cut(line, ":")
		name, whole := strings.CutSuffix(name, "*")
		if whole {
			equal(name, "sizeof(struct gv_"+name+")", "sizeof(struct ibv_"+name+")")
		}
		for _, f := range strings.Fields(fields) {
			ours, theirs := "struct gv_"+name, "struct ibv_"+name
			equal(name+"."+f, "offsetof("+ours+", "+f+")", "offsetof("+theirs+", "+f+")")
			equal("size of "+name+"."+f, "sizeof((("+ours+" *)0)->"+f+")", "sizeof((("+theirs+" *)0)->"+f+")")
		}
	}
	for _, c := range strings.Fields(constants) {
		equal(c, "GV_"+c, "IBV_"+c)
	}
	for name, v := range masks {
		equal(name, fmt.Sprint(v), name)
	}
	for i, name := range enumNames() {
		equal(name, fmt.Sprint(i.value), name)
	}
	return b.String()
}

// enumerator is a value of an enum of package ibverbs; kind keeps those of
// different enums apart.
type enumerator struct {
	kind  string
	value uint32
}

// enumNames returns the C names that the String methods of package ibverbs know.
func enumNames() map[enumerator]string {
	names := map[enumerator]string{}
	for v := range uint32(256) {
		for _, s := range []fmt.Stringer{ibverbs.WCStatus(v), ibverbs.WCOpcode(v), ibverbs.WROpcode(v), ibverbs.QPState(v),
			ibverbs.PortState(v), ibverbs.LinkLayer(v), ibverbs.AsyncEventType(v)} {
			if name := s.String(); !strings.Contains(name, "(") {
				names[enumerator{fmt.Sprintf("%T", s), v}] = name
			}
		}
	}
	return names
}

// compile compiles C source and returns the compiler's messages.
func compile(t *testing.T, source string) (string, error) {
	file := filepath.Join(t.TempDir(), "abi.c")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
	out, err := exec.Command("cc", "-I.", "-fsyntax-only", file).CombinedOutput()
	return string(out), err
}

// requireCC skips the test without a C compiler.
func requireCC(t testing.TB) {
	if _, err := exec.LookPath("cc"); err != nil {
		skip.Missing(t, "cc", err, "install a C compiler (Debian: gcc)")
	}
}
