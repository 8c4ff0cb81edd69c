package handshake

import (
	"testing"

	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// TestHostHash: it says that two sides are on one host, depends on the salt, and
// an echo of it says nothing.
func TestHostHash(t *testing.T) {
	if bootID() == nil {
		t.Skip("no /proc/sys/kernel/random/boot_id: the host hash is not told")
	}
	salt, other := seq(0, nonceSize), seq(1, nonceSize)
	boot := bootID()
	require.Len(t, hostHash(boot, roleClient, salt), hashSize)
	require.NotEqual(t, hostHash(boot, roleClient, salt), hostHash(boot, roleServer, salt))
	require.NotEqual(t, hostHash(boot, roleClient, salt), hostHash(boot, roleClient, other))
	require.Nil(t, hostHash(nil, roleClient, salt))
	s := self()
	h := &wirepb.Hello{HostHash: hostHash(boot, roleServer, salt)}
	require.True(t, s.sameHost(h, roleServer, salt))
	require.False(t, s.sameHost(h, roleClient, salt))
	require.False(t, s.sameHost(&wirepb.Hello{}, roleServer, salt))
	s.boot = nil
	require.False(t, s.sameHost(&wirepb.Hello{}, roleServer, salt))
}

// TestLimitsFromWire: depths that no int of any platform may overflow by.
func TestLimitsFromWire(t *testing.T) {
	l := limits(&wirepb.Hello{Limits: &wirepb.Limits{ControlDepth: 1<<32 - 1, BulkDepth: 1<<32 - 1}})
	require.Positive(t, l.ControlDepth)
	require.Positive(t, l.BulkDepth)
	require.Error(t, l.Check())
	require.Error(t, limits(&wirepb.Hello{}).Check())
}

// TestCodec: a client says whether its calls have gdrpc's codec; those of minor
// version 2 had it and did not say so.
func TestCodec(t *testing.T) {
	require.False(t, HasCodec(t.Context()))
	require.True(t, HasCodec(WithCodec(t.Context())))
	for _, has := range []bool{false, true} {
		s := self()
		s.Codec = has
		require.Equal(t, has, codec(s.hello(seq(0, nonceSize), seq(0, nonceSize), roleClient)))
	}
	h := new(wirepb.Hello)
	require.NoError(t, proto.Unmarshal(readTranscript(t, "minor2-verbs")[0].bytes[HeaderSize:], h))
	require.True(t, codec(h))
}

// TestStreamBlock: a side says what it takes in one message of the stream; those of
// minor version 2 took 32 KiB and did not say so.
func TestStreamBlock(t *testing.T) {
	block := func(name string) uint32 {
		h := new(wirepb.Hello)
		require.NoError(t, proto.Unmarshal(readTranscript(t, name)[0].bytes[HeaderSize:], h))
		return limits(h).StreamBlock
	}
	require.EqualValues(t, 32<<10, block("minor2-verbs"))
	require.EqualValues(t, 64<<10, block("minor3-verbs"))

	ok := limits(goldenHello())
	require.NoError(t, ok.Check())
	for n, good := range map[uint32]bool{1: false, 4<<10 - 1: false, 4 << 10: true, 1<<32 - 1: true} {
		l := ok
		if l.StreamBlock = n; good {
			require.NoError(t, l.Check(), n)
		} else {
			require.ErrorContains(t, l.Check(), "stream block")
		}
	}
}

func TestServerNonce(t *testing.T) {
	n := seq(0, nonceSize)
	require.Len(t, serverNonce(n), nonceSize)
	require.NotEqual(t, n, serverNonce(n))
}

// TestRailsAgreed: peers of earlier versions open further lanes and end with them,
// or have none.
func TestRailsAgreed(t *testing.T) {
	ours := &Self{Rails: true}
	for _, tt := range []struct {
		name        string
		self        *Self
		features    uint64
		rails, lost bool
	}{
		{"same version", ours, ours.features(), true, true},
		{"earlier version", ours, featureReady | featureRails, true, false},
		{"no NICs there", ours, featureReady, false, false},
		{"lost alone means nothing", ours, featureLostRails, false, false},
		{"no NICs here", &Self{}, ours.features(), false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := &wirepb.Hello{Features: tt.features}
			require.Equal(t, tt.rails, tt.self.rails(h))
			require.Equal(t, tt.lost, tt.self.lostRails(h))
		})
	}
}
