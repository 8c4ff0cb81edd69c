package conn

import (
	"errors"

	"github.com/gdrpc/gdrpc/ibverbs/soft"
)

// pipeAddr is the address of both ends of a Pipe.
type pipeAddr struct{}

func (pipeAddr) Network() string { return "gdr" }
func (pipeAddr) String() string  { return "pipe" }

// Pipe makes two Conns that are connected in memory, stream and lanes, on the
// soft queue pairs that real connections use. It is meant for tests, and works
// inside a testing/synctest bubble.
func Pipe(d *Domain) (client, server *Conn, err error) {
	var lanes [3][2]*Lane
	for i, kind := range []LaneKind{LaneStream, LaneControl, LaneBulk} {
		if lanes[i], err = d.lanePair(kind); err != nil {
			for _, pair := range lanes[:i] {
				err = errors.Join(err, pair[0].Close(), pair[1].Close())
			}
			return nil, nil, err
		}
	}
	ends := [2]*Conn{}
	for i := range ends {
		if err := d.acquire(); err != nil {
			return nil, nil, err // the domain was closed meanwhile; its lanes keep it up
		}
		s := Setup{
			Mode: ModeSoftShared, Reason: "in memory", Client: i == 0, Gdrpc: true, Codec: true,
			Peer: d.Limits(), Control: lanes[1][i], Bulk: []*Lane{lanes[2][i]},
			StreamLane: lanes[0][i], Local: pipeAddr{}, Remote: pipeAddr{}, Checksums: d.cfg.Checksums,
		}
		if ends[i], err = newConn(d, s); err != nil {
			return nil, nil, err
		}
	}
	return ends[0], ends[1], nil
}

// lanePair makes two lanes that are connected in memory.
func (d *Domain) lanePair(kind LaneKind) (pair [2]*Lane, err error) {
	a, b := soft.Pipe()
	wires := [2]*soft.Wire{a, b}
	for i := range pair {
		if pair[i], err = d.NewLane(kind); err != nil {
			a.Close()
			b.Close()
			if i == 1 {
				err = errors.Join(err, pair[0].Close())
			}
			return pair, err
		}
	}
	for i, l := range pair {
		if err = attach(wires[i], []*Lane{l}, []QPInfo{pair[1-i].QPInfo()}); err != nil {
			return pair, errors.Join(err, pair[0].Close(), pair[1].Close())
		}
	}
	return pair, nil
}
