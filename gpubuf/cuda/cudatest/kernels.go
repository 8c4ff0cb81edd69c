package cudatest

import _ "embed"

// Kernels is PTX that every driver compiles, and whose kernels the library knows
// by their names. All threads of fill(p, n, value), increase and spin together
// work on n bytes at p: fill makes each value, increase adds value, and spin, with a
// further argument, waits for that many cycles of the GPU's clock, in the library
// for OpenGate, and then fills. fault() loses the context.
//
//go:embed testdata/kernels.ptx
var Kernels string
