// Command rxe runs this project's programs against a real RDMA device of the
// kernel, Soft-RoCE (rdma_rxe), on a machine whose own kernel need not have one:
// it boots Debian's kernel under QEMU with a file system made for the occasion.
//
// # Usage
//
//	go run ./interop/rxe                                   # make test-rxe: the list of steps
//	go run ./interop/rxe -run pingpong                     # some of them
//	go run ./interop/rxe -test ./conn -- -test.run Model   # one package's tests; what follows -- goes to the test binary
//	go run ./interop/rxe -bench                            # make bench-rxe: figures beside perftest's and librdmacm's
//
// It fails if the device is not ACTIVE, if a step fails, does not run, passes
// its time limit, or skips a test that neither the list names nor the host runs;
// then it shows the end of the kernel's log.
//
// # Requirements
//
// An x86-64 Debian 12 machine with the packages that it names when they are
// missing, a C compiler, and once a network, to download the kernel's package
// (70 MB, of which 9 stay in the user's cache). No root, no KVM: software
// emulation does, at a tenth of the speed or less.
//
// # The guest
//
// Its first process is Command guest: it loads the modules, makes the device
// rxe0 above one end of a veth pair, runs the steps as root and switches the
// machine off. Everything lies in its memory, at the paths of the host; steps
// run one after another. Both ends of every connection are rxe0, whose GID 1 is
// the RoCE v2 one of 10.8.0.1.
package main
