//go:build !linux

package hostmap

import "os"

// NewMemfd answers ErrNotSupported: only Linux is supported.
func NewMemfd(string, int64) (*os.File, error) { return nil, errPlatform() }

// SealWrites answers ErrNotSupported: only Linux is supported.
func SealWrites(*os.File) error { return errPlatform() }

// Dup answers ErrNotSupported: only Linux is supported.
func Dup(*os.File) (*os.File, error) { return nil, errPlatform() }

// MapFile answers ErrNotSupported: only Linux is supported.
func MapFile(*os.File, int64) (*Mapping, error) { return nil, errPlatform() }

// ViewFile answers ErrNotSupported: only Linux is supported.
func ViewFile(*os.File, int64) ([]byte, error) { return nil, errPlatform() }

// Unview is never called: there are no views.
func Unview([]byte) error { return errPlatform() }

// MapWords answers ErrNotSupported: only Linux is supported.
func MapWords(*os.File, int) ([]uint64, error) { return nil, errPlatform() }

// UnmapWords is never called: there are no words.
func UnmapWords([]uint64) error { return errPlatform() }
