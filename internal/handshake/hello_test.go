package handshake

import (
	"testing"

	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
	"github.com/stretchr/testify/require"
)

// TestHostHash: it says that two sides are on one host, depends on the salt, and
// an echo of it says nothing.
func TestHostHash(t *testing.T) {
	if bootID() == nil {
		t.Skip("no /proc/sys/kernel/random/boot_id: the host hash is not told")
	}
	salt, other := seq(0, nonceSize), seq(1, nonceSize)
	require.Len(t, hostHash(roleClient, salt), hashSize)
	require.NotEqual(t, hostHash(roleClient, salt), hostHash(roleServer, salt))
	require.NotEqual(t, hostHash(roleClient, salt), hostHash(roleClient, other))
	h := &wirepb.Hello{HostHash: hostHash(roleServer, salt)}
	require.True(t, sameHost(h, roleServer, salt))
	require.False(t, sameHost(h, roleClient, salt))
	require.False(t, sameHost(&wirepb.Hello{}, roleServer, salt))
}

// TestLimitsFromWire: depths that no int of any platform may overflow by.
func TestLimitsFromWire(t *testing.T) {
	l := limits(&wirepb.Hello{Limits: &wirepb.Limits{ControlDepth: 1<<32 - 1, BulkDepth: 1<<32 - 1}})
	require.Positive(t, l.ControlDepth)
	require.Positive(t, l.BulkDepth)
	require.Error(t, l.Check())
	require.Error(t, limits(&wirepb.Hello{}).Check())
}

func TestServerNonce(t *testing.T) {
	n := seq(0, nonceSize)
	require.Len(t, serverNonce(n), nonceSize)
	require.NotEqual(t, n, serverNonce(n))
}
