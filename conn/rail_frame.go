package conn

import (
	"encoding/binary"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/route"
)

// railPort is what BulkOpen and BulkReady tell of one end of a bulk lane: its
// port and its queue pair.
type railPort struct {
	end route.Endpoint
	qp  QPInfo
}

// railPortSize is link layer, MTU, GID type, reserved, LID, reserved, number,
// PSN, GID.
const railPortSize = 1 + 1 + 1 + 1 + 2 + 2 + 4 + 4 + 16

func (p *railPort) append(b []byte) []byte {
	b = append(b, byte(p.end.Link), byte(p.end.MTU), byte(p.end.Type), 0)
	b = binary.BigEndian.AppendUint16(b, p.end.LID)
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint32(b, p.qp.QPNum)
	b = binary.BigEndian.AppendUint32(b, p.qp.PSN)
	return append(b, p.end.GID[:]...)
}

// parseRailPort reads what append has written. It is not checked.
func parseRailPort(b []byte) railPort {
	return railPort{
		end: route.Endpoint{
			Link: ibverbs.LinkLayer(b[0]), MTU: ibverbs.MTU(b[1]), Type: ibverbs.GIDType(b[2]),
			LID: binary.BigEndian.Uint16(b[4:]), GID: ibverbs.GID(b[16:32]),
		},
		qp: QPInfo{QPNum: binary.BigEndian.Uint32(b[8:]), PSN: binary.BigEndian.Uint32(b[12:])},
	}
}
