package main

import (
	"fmt"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/ibverbs/verbs"
)

// handshakeTimeout leaves time for an emulated RDMA device, whose queue pairs
// take seconds on a busy machine.
const handshakeTimeout = 20 * time.Second

// connConfig is what both sides need for attachments to go by path. RDMA devices
// are used only for paths that need them.
func connConfig(path conn.Path) (cfg conn.Config, err error) {
	switch path {
	case conn.PathSoft:
		cfg.NoIPC = true
	case conn.PathRDMAStaged, conn.PathGDR:
		cfg.MaxPath, cfg.NoIPC = path, true
		devices, err := verbs.Devices()
		if err != nil {
			return cfg, fmt.Errorf("-path %v: %w", path, err)
		}
		for _, d := range devices {
			cfg.NICs = append(cfg.NICs, d)
		}
	}
	return cfg, nil
}
