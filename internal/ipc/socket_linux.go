package ipc

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// probe says whether this system has what the package needs.
func probe() error { return nil }

// rights is the control message that passes f; nil for none.
func rights(f *os.File) []byte {
	if f == nil {
		return nil
	}
	return unix.UnixRights(int(f.Fd()))
}

// filesOf returns all descriptors in a control message, which are the caller's
// to close also if it fails. They came with MSG_CMSG_CLOEXEC, which package net
// sets.
func filesOf(oob []byte) (files []*os.File, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range list {
		fds, rightsErr := unix.ParseUnixRights(&list[i])
		if rightsErr != nil {
			err = rightsErr // not SCM_RIGHTS: nothing was asked for
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "memory of another process"))
		}
	}
	return files, err
}

// queueFull reports whether a listener has too many sockets that it has not
// accepted yet.
func queueFull(err error) bool { return errors.Is(err, unix.EAGAIN) }

// cut reports whether descriptors were lost: they were more than any message
// has, or this process can have no more (unix(7)).
func cut(flags int) bool { return flags&unix.MSG_CTRUNC != 0 }

func truncated(flags int) bool { return flags&unix.MSG_TRUNC != 0 }

// uidOf returns the user of the process at the other end, when it connected or
// listened (SO_PEERCRED, socket(7)).
func uidOf(c *net.UnixConn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err == nil {
		err = credErr
	}
	if err != nil {
		return 0, fmt.Errorf("SO_PEERCRED: %w", err)
	}
	return cred.Uid, nil
}
