//go:build linux && cgo

package verbs

import (
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// node is an object's place in the object tree of a context: which objects it
// needs and how many need it. An object joins before libibverbs makes it, so
// that what it needs cannot go away meanwhile, and leaves after libibverbs has
// destroyed it.
type node struct {
	// life is held for reading by calls into libibverbs with the object, for
	// writing by the one that destroys it. It is taken before all other
	// locks of the object.
	life sync.RWMutex

	tree    *sync.Mutex // guards the fields below, of all nodes; a leaf
	name    string      // "mlx5_0 qp 17"; set before the object is handed out
	parents []*node
	users   int
	gone    bool
	track   *leak.Object
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

// leave ends n's use of its parents.
func (n *node) leave() {
	n.tree.Lock()
	defer n.tree.Unlock()
	n.gone = true
	for _, p := range n.parents {
		p.users--
	}
	n.parents = nil
	n.track.Done()
}

// end destroys the object by calling destroy, once. It fails while others use
// n. If destroy fails the object is as before.
func (n *node) end(op string, destroy func() error) error {
	n.life.Lock()
	defer n.life.Unlock()
	done, err := n.retire(op)
	if done || err != nil {
		return err
	}
	if err := destroy(); err != nil {
		n.tree.Lock()
		n.gone = false
		n.tree.Unlock()
		return err
	}
	n.leave()
	return nil
}

// retire marks the object as gone, so that nobody joins it any more. It returns
// true if it already was.
func (n *node) retire(op string) (bool, error) {
	n.tree.Lock()
	defer n.tree.Unlock()
	if n.gone {
		return true, nil
	}
	if n.users > 0 {
		return false, n.refuse(op, ibverbs.ErrBusy, fmt.Sprintf("destroy the %d objects made from it first", n.users))
	}
	n.gone = true
	return false, nil
}

// enter begins a call with the object, which ends with life.RUnlock. It returns
// ErrClosed once the object is gone.
func (n *node) enter(op string) error {
	n.life.RLock()
	n.tree.Lock()
	closed := n.gone
	n.tree.Unlock()
	if closed {
		n.life.RUnlock()
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
