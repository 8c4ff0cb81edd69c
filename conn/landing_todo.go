package conn

import "slices"

// span is a part of a landing's destination.
type span struct{ off, n int64 }

// take notes that the first n bytes of todo, which lie in its first span, are asked
// for. bulkRecv.mu is held.
func (l *Landing) take(n int64) {
	first := &l.todo[0]
	first.off += n
	if first.n -= n; first.n == 0 {
		l.todo = l.todo[1:]
	}
}

// miss notes that s, which was asked for, has not come. Neighbours become one, so
// that no short messages are asked for instead. bulkRecv.mu is held.
func (l *Landing) miss(s span) {
	i, _ := slices.BinarySearchFunc(l.todo, s, func(a, b span) int { return int(min(max(a.off-b.off, -1), 1)) })
	l.todo = slices.Insert(slices.Clone(l.todo), i, s)
	for i := max(i-1, 0); i+1 < len(l.todo); {
		a, b := &l.todo[i], l.todo[i+1]
		if a.off+a.n != b.off {
			i++
			continue
		}
		a.n += b.n
		l.todo = slices.Delete(l.todo, i+1, i+2)
	}
}
