package conn

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTodo: what is missing is asked for in order, and neighbours as one.
func TestTodo(t *testing.T) {
	l := &Landing{todo: []span{{0, 100}}}
	for range 4 {
		l.take(20)
	}
	require.Equal(t, []span{{80, 20}}, l.todo)
	l.miss(span{40, 20})
	require.Equal(t, []span{{40, 20}, {80, 20}}, l.todo)
	l.miss(span{0, 20})
	l.miss(span{20, 20})
	require.Equal(t, []span{{0, 60}, {80, 20}}, l.todo)
	l.miss(span{60, 20})
	require.Equal(t, []span{{0, 100}}, l.todo)
	l.take(100)
	require.Empty(t, l.todo)
	l.miss(span{7, 3})
	require.Equal(t, []span{{7, 3}}, l.todo)
}
