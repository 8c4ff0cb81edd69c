package main

import (
	"crypto/rand"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// probeIPC tries what sharing memory between processes of one host needs.
func probeIPC() ipcPart {
	part := ipcPart{UnixSockets: finding{State: yes}, Memfd: finding{State: yes}}
	if err := tryUnix(); err != nil {
		part.UnixSockets = finding{State: no, Why: err.Error()}
	}
	if err := tryMemfd(); err != nil {
		part.Memfd = finding{no, err.Error(), "Linux 3.17 or later; seccomp must permit memfd_create"}
	}
	return part
}

// tryUnix connects to an abstract Unix socket of its own.
func tryUnix() error {
	l, err := net.Listen("unix", "@gdrinfo-"+rand.Text())
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var credErr error
	if err := raw.Control(func(fd uintptr) { _, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	return credErr
}

// tryMemfd makes a memory file that cannot shrink.
func tryMemfd() error {
	fd, err := unix.MemfdCreate("gdrinfo", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	defer unix.Close(fd)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		return fmt.Errorf("fcntl F_ADD_SEALS: %w", err)
	}
	return nil
}
