package conn

// Mode is what the handshake settled on (the Decide message of docs/wire.md).
type Mode uint8

// The modes.
const (
	ModeVerbs      Mode = 1 + iota // stream and lanes on RC queue pairs
	ModeSoftJoined                 // stream on the bootstrap TCP, lanes on joined sockets
	ModeSoftShared                 // everything on the bootstrap TCP in soft frames
	ModePlain                      // stream on the bootstrap TCP, no lanes
)

// whyOverTCP says why lanes run over TCP, where the handshake does not: a client
// without NICs tells its server nothing of mode verbs.
func (c *Conn) whyOverTCP() string {
	const no = "no mode verbs: "
	switch {
	case c.mode != ModeSoftJoined && c.mode != ModeSoftShared:
		return ""
	case c.below != nil:
		return no + "the connection runs inside TLS, and RDMA would carry its bytes in clear"
	case c.d.noNICs != nil && len(c.d.nics) == 0:
		return no + c.d.noNICs.Error()
	}
	return no + "the peer has not offered an RDMA device (conn.Config.NICs there)"
}

var modeNames = [...]string{"none", "verbs", "soft-joined", "soft-shared", "plain"}

// String returns the mode's name, such as "soft-joined".
func (m Mode) String() string {
	if int(m) >= len(modeNames) {
		return "unknown"
	}
	return modeNames[m]
}
