package handshake

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/ibverbs/route"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
)

// The protocol's version and the feature bits that this side sets (wire.md
// section 8).
const (
	versionMajor = 1
	versionMinor = 3

	featureSoftJoined = 1 << 0
	featureSoftShared = 1 << 1
	featureReady      = 1 << 2 // Want and Ready
	featureConnEnd    = 1 << 3
	featureIPC        = 1 << 4 // memory that two processes of one host share
	featureRails      = 1 << 5 // BulkOpen and BulkReady
	featureLostRails  = 1 << 8 // BulkLost
)

// streamBlock2 is what a side takes in one message of a stream lane that does not
// say so: before minor version 3 nobody did.
const streamBlock2 = 32 << 10

// MaxBulkJoins is the most bulk lanes of one connection.
const MaxBulkJoins = conn.MaxBulkLanes

// Sizes of random values, in bytes.
const (
	nonceSize     = 16
	idSize        = 16
	secretSize    = 32
	challengeSize = 32
	hashSize      = 16
)

// Self is what this side's Hello tells.
type Self struct {
	Limits      conn.Limits
	Providers   []string // best first
	MemoryKinds []string // reached by lanes without staging
	Plaintext   bool     // conn.Config.AllowPlaintextAttachments
	IPC         bool     // memory may be shared with a process of this host and user
	Checksums   bool     // conn.Config.Checksums
	Codec       bool     // a client's calls have gdrpc's codec

	BulkJoins int      // bulk lanes that may be joined, at most MaxBulkJoins; 0: no joins at all
	Shared    bool     // lanes may share the bootstrap connection
	Rails     bool     // further bulk lanes may be opened in mode verbs
	Advertise []string // where joins reach this server, checked by CheckAdvertised

	boot []byte // names this boot of this host; nil: not told
}

// SelfOf returns what to tell of the Conns of a Domain. Lanes may neither be
// joined nor shared until the caller sets so.
func SelfOf(d *conn.Domain) Self {
	provider := "soft" // the Domain's default
	if dev := d.Config().Device; dev != nil {
		provider = dev.Provider()
	}
	return Self{
		Limits: d.Limits(), Providers: []string{provider}, MemoryKinds: []string{"host"},
		Plaintext: d.Config().AllowPlaintextAttachments, Checksums: d.Config().Checksums,
		IPC: d.SharesMemory(), Rails: len(d.Config().NICs) > 0,
		boot: bootID(),
	}
}

// VerbsOf returns what opens lanes of mode verbs on a Domain's NICs; nil if none
// are configured.
func VerbsOf(d *conn.Domain) OpenVerbs {
	if len(d.Config().NICs) == 0 {
		return nil
	}
	return func(local net.Addr, peer *route.Endpoint) (Verbs, error) { return d.OpenVerbs(local, peer) }
}

// features returns the feature bits that this side sets.
func (s *Self) features() uint64 {
	bits := uint64(featureReady | featureConnEnd)
	if s.BulkJoins > 0 {
		bits |= featureSoftJoined
	}
	if s.Shared {
		bits |= featureSoftShared
	}
	if s.Rails {
		bits |= featureRails | featureLostRails
	}
	if s.IPC {
		bits |= featureIPC
	}
	return bits
}

// hello returns the fields that both sides' Hellos share. nonce is the one that
// this Hello carries, salt the client's.
func (s *Self) hello(nonce, salt []byte, role string) *wirepb.Hello {
	h := &wirepb.Hello{
		VersionMajor: versionMajor,
		VersionMinor: versionMinor,
		Features:     s.features() | s.plaintextBit() | s.checksumBit() | s.codecBit(),
		Nonce:        nonce,
		Limits: &wirepb.Limits{
			ControlDepth: uint32(s.Limits.ControlDepth),
			BulkDepth:    uint32(s.Limits.BulkDepth),
			MaxMsg:       s.Limits.MaxMsg,
			StagingBlock: s.Limits.StagingBlock,
			StreamBlock:  s.Limits.StreamBlock,
		},
		MemoryKinds: s.MemoryKinds,
		HostHash:    hostHash(s.boot, role, salt),
		BulkJoins:   uint32(s.BulkJoins),
	}
	for _, name := range s.Providers {
		h.Providers = append(h.Providers, &wirepb.Provider{Name: name})
	}
	return h
}

// rails reports whether both sides open further bulk lanes.
func (s *Self) rails(h *wirepb.Hello) bool { return s.Rails && h.GetFeatures()&featureRails != 0 }

// lostRails reports whether a further bulk lane may be lost without the
// connection.
func (s *Self) lostRails(h *wirepb.Hello) bool {
	return s.rails(h) && h.GetFeatures()&featureLostRails != 0
}

// limits returns what the peer advertises, not yet checked.
func limits(h *wirepb.Hello) conn.Limits {
	depth := func(n uint32) int { return int(min(n, math.MaxInt32)) }
	l := h.GetLimits()
	return conn.Limits{
		ControlDepth: depth(l.GetControlDepth()),
		BulkDepth:    depth(l.GetBulkDepth()),
		MaxMsg:       l.GetMaxMsg(),
		StagingBlock: l.GetStagingBlock(),
		StreamBlock:  cmp.Or(l.GetStreamBlock(), streamBlock2),
	}
}

// noLanes says why there can be no lanes with the peer whose Hello is h, or
// returns "".
func (s *Self) noLanes(h *wirepb.Hello) string {
	if v := h.GetVersionMajor(); v != versionMajor {
		return fmt.Sprintf("the peer speaks version %d of the protocol, this side %d", v, versionMajor)
	}
	if s.joins(h) == 0 && !s.shares(h) {
		return "the two sides have no kind of lanes in common"
	}
	var theirs []string
	for _, p := range h.GetProviders() {
		theirs = append(theirs, p.GetName())
	}
	const soft = "soft"
	if !slices.Contains(s.Providers, soft) || !slices.Contains(theirs, soft) {
		return clip(fmt.Sprintf("no common provider: this side has %q, the peer %q", s.Providers, theirs))
	}
	if err := limits(h).Check(); err != nil {
		return clip(err.Error())
	}
	return ""
}

// joins returns how many bulk lanes both sides let join, 0 if none may join at
// all. Before minor version 1 there was always one.
func (s *Self) joins(h *wirepb.Hello) int {
	if h.GetFeatures()&featureSoftJoined == 0 {
		return 0
	}
	theirs := min(max(h.GetBulkJoins(), 1), MaxBulkJoins)
	return min(s.BulkJoins, int(theirs))
}

// shares reports whether both sides let lanes share the bootstrap connection.
func (s *Self) shares(h *wirepb.Hello) bool {
	return s.Shared && h.GetFeatures()&featureSoftShared != 0
}

// serverNonce is what a server's Hello answers a client's nonce with. An echo
// of the client's Hello cannot carry it.
func serverNonce(client []byte) []byte {
	sum := sha256.Sum256(append([]byte("gdrpc server hello"), client...))
	return sum[:nonceSize]
}

// The labels by which host hashes of the two sides differ.
const (
	roleClient = "client"
	roleServer = "server"
)

// hostHash names this boot of this host to a peer that is on it too, and says
// nothing to any other. It is nil where the host has no boot id.
func hostHash(boot []byte, role string, salt []byte) []byte {
	if len(boot) == 0 {
		return nil
	}
	sum := sha256.Sum256(slices.Concat([]byte("gdrpc host "+role), salt, boot))
	return sum[:hashSize]
}

// sameHost reports whether the peer, which has the given role, says that it is
// on this host. It is a claim, not a proof.
func (s *Self) sameHost(h *wirepb.Hello, role string, salt []byte) bool {
	own := hostHash(s.boot, role, salt)
	return own != nil && bytes.Equal(own, h.GetHostHash())
}

// bootID is random for each boot (random(4)).
var bootID = sync.OnceValue(func() []byte {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil
	}
	return bytes.TrimSpace(id)
})
