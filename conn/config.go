package conn

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/route"
)

// Config configures a Domain. The zero value of a field means its default. A
// Config is not changed after NewDomain.
type Config struct {
	// Device is the verbs device that lanes over TCP run on. Default: a
	// software device of its own.
	Device ibverbs.Device

	// NICs are the RDMA devices that mode verbs runs on, each an
	// ibverbs.FabricContext once it is open. One that cannot be opened is left
	// out, with a line in the log. Default: none, and all lanes run over TCP.
	NICs []ibverbs.Device

	// Route orders a device, port or GID for mode verbs. What does not exist
	// is an error of NewDomain, which lists what does. Default: the port and
	// GID nearest to each connection's TCP socket.
	Route route.Override

	// Nearest names the one of the NICs by which attachments should come into
	// a device's memory; "" leaves it to the connection. It is called for each
	// landing, and for the source of one that the peer opens a lane for, and
	// may block no longer than a look into a table. Default:
	// by the PCI topology, as gdrinfo shows it: a GPU's share of the NICs
	// nearest to it, for host memory those of the NUMA nodes that this process
	// may run on, in turn, and all in turn for a device that does not tell
	// where it is (gpubuf.PCIDevice).
	Nearest func(dev gpubuf.Device, nics []string) string

	// MaxPath, if set, is the best path that attachments may take: PathSoft
	// rules mode verbs out, anything below PathIPC shared memory, anything
	// below PathGDR that NICs reach device memory themselves. Default: any
	// path.
	MaxPath Path

	// Require, if set, is the worst path that attachments may take. NewDomain
	// fails if that takes NICs and there are none, a dial if it cannot reach
	// it, and a landing on this side if it would go by a worse one
	// (ErrRequire); landings on the peer's side are held to the peer's
	// Require. Attachments of up to 16 KiB may go by any. Default: any path.
	Require Path

	// StagingBlock is the size in bytes of the host blocks through which
	// attachments go to and from device memory; a power of two from 4 KiB
	// to 8 MiB. Default 1 MiB. A device with pinned memory
	// (gpubuf.PinnedDevice) has its blocks there. Where the two sides
	// differ, chunks have the size of the smaller block.
	StagingBlock int

	// StagingBlocks is how many staging blocks one bulk lane may hold at a
	// time for each direction, at least 2: as many copies can be under way.
	// Default 4. They are taken on demand and given back to the Domain when
	// idle, which keeps pinned memory for as long as a Conn that has used it
	// is open.
	StagingBlocks int

	// RegCacheBytes and RegCacheEntries bound the registrations that each NIC
	// keeps of wrapped memory (gpubuf.Wrap) which nobody uses now, for the next
	// wrap of the same bytes, since registering costs milliseconds: of memory
	// whose owner says so (gpubuf.WrapConfig.Tenure), and of a GPU's that its
	// device can tell from later allocations (gpubuf.IdentifiedMemory), which
	// the GPU may not have back before, though its owner has freed it. What was
	// used least recently goes first, also where RLIMIT_MEMLOCK is met. In
	// bytes and in number. Default 1 GiB and 256; negative, either: none are
	// kept, and wraps share none.
	RegCacheBytes   int64
	RegCacheEntries int

	// MaxOffers bounds the offers open on one Conn. Default 65536.
	MaxOffers int

	// AllowPlaintextAttachments lets attachments travel in clear, readable
	// and changeable by whoever is on the way, beside a byte stream that is
	// encrypted above the Conn (grpc's TLS or ALTS credentials). It takes
	// effect if both sides set it; Stats and the log then say so. With TLS
	// below the Conn (dialer.Config.TLS, listener.Config.TLS) it is not
	// needed: attachments are encrypted there. Default: they stay inside.
	AllowPlaintextAttachments bool

	// NoIPC keeps attachments from moving by memory that two processes of
	// this host and user share. By default they do where the source lies in
	// memory that can be shared (gpubuf.SharedMemory): the peer can then read
	// the whole region that the source lies in. MaxPath below PathIPC and
	// Require above it imply NoIPC.
	NoIPC bool

	// Openers are the devices by which memory of GPUs that other processes
	// share is read into host memory. Default: none; such attachments then
	// go another way. A landing on a device opens it by that device.
	Openers []gpubuf.Opener

	// Checksums has a landing compare the CRC-32C of what it wrote with that
	// of the source, each computed where the bytes lie, before Wait returns
	// nil. It takes effect if both sides set it; Stats then says so. It costs
	// each side one more pass over the bytes, and a device that cannot sum
	// (gpubuf.Summer) can neither send nor land. Bytes inside a message are
	// not covered. Default: off.
	Checksums bool

	// LandingTimeout is how long a landing may go without a completion
	// before it is aborted. Default 30 s, negative: for ever.
	LandingTimeout time.Duration

	// PollTime bounds how long a Read on queue pairs of a NIC polls before it
	// waits for an event, whose wake-up takes longer: while it awaits an answer to
	// what was written; else for a tenth of that. It polls only
	// while messages have lately come within that time, so an idle connection
	// costs nothing. Default: twenty times what it takes to wake a goroutine by a
	// descriptor, as measured on this machine, from 50 us to 2 ms; negative: never.
	PollTime time.Duration

	// DrainTimeout bounds the wait for outstanding work requests of a
	// withdrawn offer or a cancelled landing; past it the Conn is closed.
	// Default 5 s.
	DrainTimeout time.Duration

	// Logger receives one line for each Conn and each fallback.
	// Default slog.Default().
	Logger *slog.Logger

	// sysfs is the root of the file system that tells the topology. Default:
	// this machine's. Tests have others.
	sysfs string
}

const (
	minStagingBlock = 4 << 10
	maxStagingBlock = 8 << 20
)

// withDefaults returns a copy with every default filled in.
func (c Config) withDefaults() Config {
	setDefault(&c.StagingBlock, 1<<20)
	setDefault(&c.StagingBlocks, 4)
	setDefault(&c.RegCacheBytes, 1<<30)
	setDefault(&c.RegCacheEntries, 256)
	setDefault(&c.MaxOffers, 65536)
	setDefault(&c.LandingTimeout, 30*time.Second)
	setDefault(&c.DrainTimeout, 5*time.Second)
	if c.MaxPath != PathNone && c.MaxPath < PathIPC || c.Require > PathIPC {
		c.NoIPC = true
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate checks what is set. What is advertised to peers is checked here,
// at start, and not at the first handshake.
func (c Config) validate() error {
	if b := c.StagingBlock; b < minStagingBlock || b > maxStagingBlock || b&(b-1) != 0 {
		return fmt.Errorf("conn: Config.StagingBlock %d: want a power of two from %d to %d bytes", b, minStagingBlock, maxStagingBlock)
	}
	if c.StagingBlocks < 2 {
		return fmt.Errorf("conn: Config.StagingBlocks %d: want at least 2", c.StagingBlocks)
	}
	if c.MaxOffers < 1 {
		return fmt.Errorf("conn: Config.MaxOffers %d: want at least 1", c.MaxOffers)
	}
	if c.DrainTimeout < 0 {
		return fmt.Errorf("conn: Config.DrainTimeout %v: want a positive duration; waits for hardware are always bounded", c.DrainTimeout)
	}
	return c.validatePaths()
}

// validatePaths checks that some path is as good as is required and allowed. A
// MaxPath that is too low is told first, since it implies NoIPC.
func (c Config) validatePaths() error {
	if c.Require > PathGDR {
		return fmt.Errorf("conn: Config.Require %d: no such path", c.Require)
	}
	if c.MaxPath > PathGDR {
		return fmt.Errorf("conn: Config.MaxPath %d: no such path", c.MaxPath)
	}
	if c.MaxPath != PathNone && c.MaxPath < max(c.Require, PathSoft) {
		return fmt.Errorf("conn: Config.MaxPath %v: want at least %v, as Config.Require or the lanes have it", c.MaxPath, max(c.Require, PathSoft))
	}
	if c.NoIPC && c.Require == PathIPC {
		return fmt.Errorf("conn: Config.Require is %v and Config.NoIPC is set: leave one of them out", c.Require)
	}
	if len(c.NICs) == 0 && c.needsNICs() {
		return fmt.Errorf("conn: Config.Require is %v and no RDMA devices are configured: set Config.NICs, or lower Require", c.Require)
	}
	return nil
}

// needsNICs reports whether no path without NICs is as good as is required:
// shared memory is better than rdma-staged.
func (c Config) needsNICs() bool {
	return c.Require > PathIPC || c.Require == PathRDMAStaged && c.NoIPC
}
