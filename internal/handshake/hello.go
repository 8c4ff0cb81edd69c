package handshake

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
)

// The protocol's version and the feature bits that this side sets (wire.md
// section 8).
const (
	versionMajor = 1
	versionMinor = 0

	featureSoftJoined = 1 << 0
	features          = featureSoftJoined
)

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
}

// SelfOf returns what to tell of the Conns of a Domain.
func SelfOf(d *conn.Domain) Self {
	provider := "soft" // the Domain's default
	if dev := d.Config().Device; dev != nil {
		provider = dev.Provider()
	}
	return Self{Limits: d.Limits(), Providers: []string{provider}, MemoryKinds: []string{"host"}}
}

// hello returns the fields that both sides' Hellos share. nonce is the one that
// this Hello carries, salt the client's.
func (s *Self) hello(nonce, salt []byte, role string) *wirepb.Hello {
	h := &wirepb.Hello{
		VersionMajor: versionMajor,
		VersionMinor: versionMinor,
		Features:     features,
		Nonce:        nonce,
		Limits: &wirepb.Limits{
			ControlDepth: uint32(s.Limits.ControlDepth),
			BulkDepth:    uint32(s.Limits.BulkDepth),
			MaxMsg:       s.Limits.MaxMsg,
			StagingBlock: s.Limits.StagingBlock,
		},
		MemoryKinds: s.MemoryKinds,
		HostHash:    hostHash(role, salt),
	}
	for _, name := range s.Providers {
		h.Providers = append(h.Providers, &wirepb.Provider{Name: name})
	}
	return h
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
	}
}

// noLanes says why there can be no lanes with the peer whose Hello is h, or
// returns "".
func (s *Self) noLanes(h *wirepb.Hello) string {
	if v := h.GetVersionMajor(); v != versionMajor {
		return fmt.Sprintf("the peer speaks version %d of the protocol, this side %d", v, versionMajor)
	}
	if h.GetFeatures()&featureSoftJoined == 0 {
		return "the peer does not offer soft-joined lanes"
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
func hostHash(role string, salt []byte) []byte {
	id := bootID()
	if len(id) == 0 {
		return nil
	}
	sum := sha256.Sum256(slices.Concat([]byte("gdrpc host "+role), salt, id))
	return sum[:hashSize]
}

// sameHost reports whether the peer, which has the given role, says that it is
// on this host. It is a claim, not a proof.
func sameHost(h *wirepb.Hello, role string, salt []byte) bool {
	own := hostHash(role, salt)
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
