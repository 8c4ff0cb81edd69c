package soft

import (
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// node is an object's place in the object tree of a context: which objects it
// needs, and how many need it. The context's tree lock guards all nodes of the
// tree. It is a leaf: nothing is locked under it.
type node struct {
	tree    *sync.Mutex
	name    string  // "soft0 qp 17"; immutable
	parents []*node // immutable

	users int          // guarded by tree
	gone  bool         // guarded by tree
	track *leak.Object // guarded by tree
}

// join makes n a user of its parents, none of which may be gone.
func (n *node) join(op string, track *leak.Object, parents ...*node) error {
	n.tree.Lock()
	defer n.tree.Unlock()
	for _, p := range parents {
		if p.gone {
			track.Done()
			return p.refuse(op, ibverbs.ErrClosed, "")
		}
	}
	for _, p := range parents {
		p.users++
	}
	n.parents, n.track = parents, track
	return nil
}

// leave ends n's use of its parents. It fails while others use n, and does
// nothing the second time.
func (n *node) leave(op string) error {
	n.tree.Lock()
	defer n.tree.Unlock()
	if n.gone {
		return nil
	}
	if n.users > 0 {
		return n.refuse(op, ibverbs.ErrBusy, fmt.Sprintf("destroy the %d objects made from it first", n.users))
	}
	n.gone = true
	for _, p := range n.parents {
		p.users--
	}
	n.track.Done()
	return nil
}

// open returns ErrClosed once n has left.
func (n *node) open(op string) error {
	n.tree.Lock()
	defer n.tree.Unlock()
	if n.gone {
		return n.refuse(op, ibverbs.ErrClosed, "")
	}
	return nil
}

// refuse makes the error of a refused call on n.
func (n *node) refuse(op string, cause error, remedy string) error {
	return &ibverbs.Error{Op: op, Subject: n.name, Err: cause, Remedy: remedy}
}

// invalid makes an ErrInvalid with a reason.
func (n *node) invalid(op, format string, args ...any) error {
	return n.refuse(op, fmt.Errorf("%w: %s", ibverbs.ErrInvalid, fmt.Sprintf(format, args...)), "")
}
