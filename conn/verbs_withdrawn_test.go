package conn

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVerbsWithdrawn: whoever comes late to an offer finds that it is withdrawn,
// and does not touch its memory.
func TestVerbsWithdrawn(t *testing.T) {
	pool := newPool(t, "emu")
	client, server := verbsPair(t, quiet())
	greet(t, client, server)
	s, _ := filled(t, pool, 1<<20, 1)
	o, err := NewOffer(s)
	require.NoError(t, err)
	o.Withdraw()
	<-o.Drained()
	require.Equal(t, OfferStaged, client.Flags(o))
	require.Error(t, client.AddOffer(o))
	require.Error(t, server.Land(o.Token(), o.Flags(), alloc(t, pool, 1<<20)).Wait(soon(t)))
}
