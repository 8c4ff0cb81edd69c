package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCPIO(t *testing.T) {
	const zeros = "00000000"
	head := func(ino, mode, links, size, name string) string {
		return "070701" + ino + mode + zeros + zeros + links + zeros + size + zeros + zeros + zeros + zeros + name + zeros
	}
	var out bytes.Buffer
	c := newCPIO(&out)
	c.add("/d/f", 0o755, []byte("hello"))
	c.add("/d/f", 0o644, []byte("a second time")) // the first one stays
	require.NoError(t, c.close())
	require.Equal(t, head("00000001", "000041ed", "00000002", zeros, "00000002")+"d\x00"+
		head("00000002", "000081ed", "00000001", "00000005", "00000004")+"d/f\x00\x00\x00"+"hello\x00\x00\x00"+
		head(zeros, zeros, "00000001", zeros, "0000000b")+"TRAILER!!!\x00\x00\x00\x00", out.String())
}

func TestCPIOError(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	c := newCPIO(f)
	c.add("/f", 0o644, nil)
	require.ErrorIs(t, c.close(), os.ErrClosed)
}

func TestLibraries(t *testing.T) {
	require.Equal(t, []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}, libraries(
		"\tlinux-vdso.so.1 (0x00007ffd3a5f4000)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n"))
	require.Empty(t, libraries("\tstatically linked\n"))
	require.Equal(t, "/usr/lib64/ld.so", inUsr("/lib64/ld.so"))
	require.Equal(t, "/usr/lib/x.so", inUsr("/usr/lib/x.so"))
	require.Equal(t, "/library/x.so", inUsr("/library/x.so"))
}
