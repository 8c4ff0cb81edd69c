//go:build !linux || !cgo

package verbs

import "github.com/gdrpc/gdrpc/ibverbs"

// library stands for libibverbs, which this build cannot call.
type library struct{}

func load(string) (*library, error) {
	return nil, notSupported("this build cannot call C", "build on Linux with CGO_ENABLED=1 and a C compiler")
}

func (*library) names() ([]string, error) { return nil, nil }

func (*library) open(d *Device) (ibverbs.Context, error) {
	return nil, noDevice("open_device", d.name, "")
}
