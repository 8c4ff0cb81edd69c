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

var modeNames = [...]string{"none", "verbs", "soft-joined", "soft-shared", "plain"}

// String returns the mode's name, such as "soft-joined".
func (m Mode) String() string {
	if int(m) >= len(modeNames) {
		return "unknown"
	}
	return modeNames[m]
}
