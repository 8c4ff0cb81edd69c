// Package gpu holds the suites of attachments between the memory of GPUs: in one
// process and between two, over every path, with kernels that write the source
// and read what landed. They run on an NVIDIA GPU (requirement cuda), on the CUDA
// driver library without a GPU, and on the emulated one. It has tests only. The
// folder kit builds them for machines without Go.
package gpu
