package fabric

import (
	"errors"
	"sync"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// ErrNoRoute: no port of the fabric has the destination's address. It stands for
// what ibv_modify_qp(3) answers with EINVAL or ETIMEDOUT.
var ErrNoRoute = errors.New("no route to the destination")

// Fabric is a network. All methods may be called from any goroutine.
type Fabric struct {
	// mu guards the network and its devices' ports and queue pairs. No lock
	// of package soft is taken under it.
	mu      sync.Mutex
	devices []*Device          // guarded by mu
	ends    map[endName]*QP    // connected or connectable queue pairs; guarded by mu
	links   map[linkName]*link // whose second side has not come yet; guarded by mu
}

// endName names a queue pair on the fabric.
type endName struct {
	dev *Device
	num uint32
}

// linkName is a link by the queue pair that waits and the one that it waits for.
type linkName struct{ from, to endName }

// New makes an empty network.
func New() *Fabric {
	return &Fabric{ends: make(map[endName]*QP), links: make(map[linkName]*link)}
}

// find returns the device and port to which an address handle leads. mu is
// held.
func (f *Fabric) find(ah ibverbs.AHAttr) (*Device, int) {
	for _, d := range f.devices {
		for i := range d.ports {
			if d.ports[i].has(ah) {
				return d, i + 1
			}
		}
	}
	return nil, 0
}

// has reports whether an address handle leads to the port.
func (p *Port) has(ah ibverbs.AHAttr) bool {
	if !ah.IsGlobal {
		return p.Attr.LinkLayer == ibverbs.LinkInfiniBand && p.Attr.LID == ah.DLID
	}
	for _, g := range p.GIDs {
		if g.GID == ah.DGID {
			return true
		}
	}
	return false
}
