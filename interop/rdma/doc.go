// Package rdma holds tests of whole connections and calls over an RDMA device
// of this machine, both ends on one port. Without a device with an ACTIVE port
// they skip; `make test-rxe` runs them on Soft-RoCE.
package rdma
