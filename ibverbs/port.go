package ibverbs

import (
	"net/netip"
	"strconv"
)

// FabricContext is a Context whose queue pairs reach each other over a network
// by address. Those of a Context that is none (ibverbs/soft) are linked by
// their owner.
type FabricContext interface {
	Context
	// NumPorts is the number of physical ports; they count from 1.
	NumPorts() int
	// QueryPort returns a port's state (ibv_query_port(3)).
	QueryPort(port int) (PortAttr, error)
	// GIDs returns the port's source addresses that are in use, by index
	// (ibv_query_gid_table(3)). Entries that are empty, or that cannot be
	// read from inside a container, are left out.
	GIDs(port int) ([]GIDEntry, error)
	// AsyncEvent blocks until something happens to the device, a port or a
	// queue pair, acknowledges the event and returns it
	// (ibv_get_async_event(3)). After Close it returns ErrClosed. Of a CQ
	// that failed, Poll has an error from then on, and who waits for it is
	// woken.
	AsyncEvent() (AsyncEvent, error)
}

// PortAttr is the state of a port (struct ibv_port_attr, in part).
type PortAttr struct {
	State     PortState
	LinkLayer LinkLayer
	ActiveMTU MTU
	MaxMsgSz  uint32 // bytes per message
	LID       uint16 // local address on InfiniBand; 0 on Ethernet
}

// PortState is the logical state of a port (enum ibv_port_state).
type PortState uint8

// Port states.
const (
	PortNop PortState = iota
	PortDown
	PortInit
	PortArmed
	PortActive
	PortActiveDefer
)

var portStateNames = [...]string{
	"IBV_PORT_NOP", "IBV_PORT_DOWN", "IBV_PORT_INIT", "IBV_PORT_ARMED", "IBV_PORT_ACTIVE", "IBV_PORT_ACTIVE_DEFER",
}

// String returns the C name.
func (s PortState) String() string {
	if int(s) < len(portStateNames) {
		return portStateNames[s]
	}
	return unknown("IBV_PORT", uint32(s))
}

// LinkLayer is what a port is plugged into (IBV_LINK_LAYER_*).
type LinkLayer uint8

// Link layers.
const (
	LinkUnspecified LinkLayer = iota
	LinkInfiniBand
	LinkEthernet
)

// String returns the C name.
func (l LinkLayer) String() string {
	switch l {
	case LinkUnspecified:
		return "IBV_LINK_LAYER_UNSPECIFIED"
	case LinkInfiniBand:
		return "IBV_LINK_LAYER_INFINIBAND"
	case LinkEthernet:
		return "IBV_LINK_LAYER_ETHERNET"
	}
	return unknown("IBV_LINK_LAYER", uint32(l))
}

// MTU is a path MTU (enum ibv_mtu): 1 is 256 bytes, 5 is 4096.
type MTU uint8

// Path MTUs.
const (
	MTU256 MTU = 1 + iota
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Bytes is the MTU's payload in bytes, 0 for a number that is no MTU.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// String returns the number of bytes.
func (m MTU) String() string { return strconv.Itoa(m.Bytes()) }

// GID is the address of a port (union ibv_gid): an IPv6 address, or an IPv4
// one mapped into it.
type GID [16]byte

// Addr returns the GID as an address, IPv4 unmapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// String returns the address in full, as ibv_devinfo prints it for IPv6.
func (g GID) String() string { return netip.AddrFrom16(g).String() }

// GIDType says how packets of a GID look (enum ibv_gid_type).
type GIDType uint8

// GID types.
const (
	GIDTypeIB     GIDType = iota // InfiniBand
	GIDTypeRoCEv1                // Ethernet frames of their own; not routed
	GIDTypeRoCEv2                // UDP over IP
)

// String returns the name that the kernel's gid_attrs/types has.
func (t GIDType) String() string {
	switch t {
	case GIDTypeIB:
		return "IB"
	case GIDTypeRoCEv1:
		return "RoCE v1"
	case GIDTypeRoCEv2:
		return "RoCE v2"
	}
	return unknown("IBV_GID_TYPE", uint32(t))
}

// GIDEntry is one row of a port's GID table (struct ibv_gid_entry).
type GIDEntry struct {
	GID    GID
	Index  int
	Type   GIDType
	NetDev string // the network interface, "eth0"; empty if there is none
}

// AHAttr is the way to a peer (struct ibv_ah_attr).
type AHAttr struct {
	PortNum   uint8 // the local port
	SL        uint8 // service level
	DLID      uint16
	IsGlobal  bool // the fields below count; always on Ethernet
	DGID      GID
	SGIDIndex uint8
	HopLimit  uint8
	Traffic   uint8 // traffic class
}

// AsyncEvent is something that happened to a device (struct ibv_async_event).
type AsyncEvent struct {
	Type AsyncEventType
	Port int    // of a port event
	QP   uint32 // number of the queue pair of a QP event
}

// AsyncEventType is a kind of event (enum ibv_event_type).
type AsyncEventType uint32

// Events.
const (
	EventCQErr AsyncEventType = iota
	EventQPFatal
	EventQPReqErr
	EventQPAccessErr
	EventCommEst
	EventSQDrained
	EventPathMig
	EventPathMigErr
	EventDeviceFatal
	EventPortActive
	EventPortErr
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventSRQErr
	EventSRQLimitReached
	EventQPLastWQEReached
	EventClientReregister
	EventGIDChange
	EventWQFatal
)

var asyncEventNames = [...]string{
	"IBV_EVENT_CQ_ERR", "IBV_EVENT_QP_FATAL", "IBV_EVENT_QP_REQ_ERR", "IBV_EVENT_QP_ACCESS_ERR", "IBV_EVENT_COMM_EST",
	"IBV_EVENT_SQ_DRAINED", "IBV_EVENT_PATH_MIG", "IBV_EVENT_PATH_MIG_ERR", "IBV_EVENT_DEVICE_FATAL", "IBV_EVENT_PORT_ACTIVE",
	"IBV_EVENT_PORT_ERR", "IBV_EVENT_LID_CHANGE", "IBV_EVENT_PKEY_CHANGE", "IBV_EVENT_SM_CHANGE", "IBV_EVENT_SRQ_ERR",
	"IBV_EVENT_SRQ_LIMIT_REACHED", "IBV_EVENT_QP_LAST_WQE_REACHED", "IBV_EVENT_CLIENT_REREGISTER", "IBV_EVENT_GID_CHANGE",
	"IBV_EVENT_WQ_FATAL",
}

// String returns the C name.
func (t AsyncEventType) String() string {
	if int(t) < len(asyncEventNames) {
		return asyncEventNames[t]
	}
	return unknown("IBV_EVENT", uint32(t))
}
