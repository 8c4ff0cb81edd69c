//go:build !cgo || !linux

package cudatest

const hasCgo = false
