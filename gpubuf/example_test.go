package gpubuf_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
)

// Bytes go into device memory, are shared as a window, and come out again.
func Example() {
	dev, err := emu.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	pool, err := gpubuf.NewPool(gpubuf.Config{Device: dev})
	if err != nil {
		log.Fatal(err)
	}
	s, err := pool.Alloc(context.Background(), 1<<20)
	if err != nil {
		log.Fatal(err)
	}
	if err := s.CopyIn(1000, []byte("tensor")); err != nil {
		log.Fatal(err)
	}
	window, err := s.Sub(1000, 6)
	if err != nil {
		log.Fatal(err)
	}
	s.Free() // the window keeps the memory

	got := make([]byte, window.Len())
	if err := window.CopyOut(got, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s on %s\n", got, window.Device().Name())
	window.Free()

	if err := pool.Close(); err != nil {
		log.Fatal(err)
	}
	if err := dev.Close(); err != nil {
		log.Fatal(err)
	}
	// Output: tensor on emu:0
}

// A registration for a region lives exactly as long as the region's memory.
func ExampleRegion_OnRelease() {
	dev, err := emu.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	pool, err := gpubuf.NewPool(gpubuf.Config{Device: dev})
	if err != nil {
		log.Fatal(err)
	}
	s, err := pool.Alloc(context.Background(), 4096)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("register", s.Region().Size(), "bytes")
	if _, err := s.Region().OnRelease(func() { fmt.Println("deregister") }); err != nil {
		log.Fatal(err)
	}
	s.Free() // the region stays, registered, for the next slice
	fmt.Println("close")
	if err := pool.Close(); err != nil {
		log.Fatal(err)
	}
	if err := dev.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// register 67108864 bytes
	// close
	// deregister
}
