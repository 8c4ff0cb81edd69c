// Package cudatest is a CUDA driver library without a GPU, for tests. It keeps
// the rules of the real one and notes every call that breaks one. Nothing
// asynchronous happens before somebody waits for it or polls it, so that code
// which does not wait sees old bytes.
//
//	f := cudatest.New(t, nil)
//	dev, err := cuda.New(&cuda.Config{Library: f.Path})
//
// Processes that each have one of these libraries share memory as processes with
// a GPU do. The library is compiled by cc from the C sources in this package's
// binary, once; or GDR_TEST_FAKE_CUDA names one that was built elsewhere.
package cudatest
