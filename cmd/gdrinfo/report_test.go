package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf/cuda"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name + ".golden"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "go test ./cmd/gdrinfo -update writes %s", path)
}

func TestGolden(t *testing.T) {
	for name, machine := range map[string]func(*testing.T) sources{"nothing": nothing, "full": full, "half": half, "guest": guest} {
		t.Run(name, func(t *testing.T) {
			s := machine(t)
			code, text, stderr := run(t, s, nil)
			require.Equal(t, exitOK, code, stderr)
			golden(t, name+".txt", text)
			code, object, stderr := run(t, s, nil, "-json")
			require.Equal(t, exitOK, code, stderr)
			requireNoNull(t, object)
			if name != "full" { // which has 108 pairs, and nothing that the others lack
				golden(t, name+".json", object)
			}
		})
	}
}

func requireNoNull(t *testing.T, object string) {
	t.Helper()
	require.True(t, json.Valid([]byte(object)))
	require.NotRegexp(t, regexp.MustCompile(`(?m)(: |^\s*)null,?$`), object)
}

// pathOf finds one pair of a report.
func pathOf(t *testing.T, s sources, memory, nic string) pathEntry {
	t.Helper()
	r, err := collect(s)
	require.NoError(t, err)
	for _, e := range r.Paths {
		if e.Memory == memory && e.NIC == nic {
			return e
		}
	}
	require.Fail(t, "no such pair", "%s %s", memory, nic)
	return pathEntry{}
}

// TestPathSteps breaks a machine on which everything works, one thing at a time.
func TestPathSteps(t *testing.T) {
	const gpu, nic = "0000:18:00.0", "mlx5_0"
	remove := func(name string) func(*testing.T, *sources) {
		return func(t *testing.T, s *sources) { require.NoError(t, os.RemoveAll(s.root.Path(name))) }
	}
	for _, tt := range []struct {
		name               string
		do                 func(*testing.T, *sources)
		path, better, step string
		why                string
	}{
		{"nothing", func(*testing.T, *sources) {}, "gdr", "", "", ""},
		{"no peer memory", remove("sys/kernel/mm"), "gdr", "", "", ""},
		{"dma-buf and no peer memory", func(t *testing.T, s *sources) {
			remove("sys/kernel/mm")(t, s)
			remove("sys/module/nvidia_peermem")(t, s)
		}, "gdr", "", "", ""},
		{"no dma-buf but peer memory", func(t *testing.T, s *sources) { s.verbsList(syscall.EOPNOTSUPP, nic) }, "gdr", "", "", ""},
		{"neither", func(t *testing.T, s *sources) {
			s.verbsList(syscall.EPROTONOSUPPORT, nic)
			remove("sys/kernel/mm")(t, s)
			remove("sys/module/nvidia_peermem")(t, s)
		}, "rdma-staged", "gdr", "registration", "nvidia_peermem is not loaded"},
		{"the probe says something else", func(t *testing.T, s *sources) {
			s.verbsList(syscall.EPERM, nic)
			remove("sys/kernel/mm")(t, s)
			remove("sys/module/nvidia_peermem")(t, s)
		}, "rdma-staged", "gdr", "registration", "not known: dma-buf: "},
		{"CUDA hides the GPU", func(t *testing.T, s *sources) { s.cuda = func() ([]cuda.Info, error) { return nil, nil } },
			"none", "soft", "GPU", "CUDA does not show it"},
		{"no driver", func(t *testing.T, s *sources) { s.cuda = machineOf(t).cuda }, "none", "soft", "GPU", "libcuda.so: cannot open)"},
		{"no GPUDirect", func(t *testing.T, s *sources) {
			s.cuda = func() ([]cuda.Info, error) { return []cuda.Info{{PCI: gpu, DMABuf: true}}, nil }
		}, "rdma-staged", "gdr", "GPUDirect RDMA", "does not let other devices"},
		{"locked memory", func(t *testing.T, s *sources) {
			s.memlock = func() (soft, hard uint64, err error) { return 64 << 10, 64 << 10, nil }
		}, "soft", "rdma-staged", "memlock", "64 KiB is too little"},
		{"locked memory not known", func(t *testing.T, s *sources) {
			s.memlock = func() (soft, hard uint64, err error) { return 0, 0, syscall.ENOSYS }
		}, "soft", "rdma-staged", "memlock", "not known: getrlimit"},
		{"no libibverbs", func(t *testing.T, s *sources) { s.verbs = machineOf(t).verbs }, "soft", "rdma-staged", "libibverbs", "dlopen libibverbs.so.1"},
		{"libibverbs lists nothing", func(t *testing.T, s *sources) {
			s.verbs = func() ([]ibverbs.Device, error) { return nil, ibverbs.ErrNoDevice }
		}, "soft", "rdma-staged", "open", "no verbs device for it"},
		{"port", func(t *testing.T, s *sources) { s.verbsList(nil, "!"+nic) }, "soft", "rdma-staged", "port", "IBV_PORT_DOWN"},
		{"uverbs not loaded", func(t *testing.T, s *sources) {
			s.verbsList(nil, "other")
			remove("sys/module/ib_uverbs")(t, s)
		}, "soft", "rdma-staged", "open", "ib_uverbs is not loaded"},
		{"version", func(t *testing.T, s *sources) { s.best = conn.PathSoft }, "soft", "rdma-staged", "gdrpc", "the machine could"},
		{"version for GPUs", func(t *testing.T, s *sources) { s.best = conn.PathRDMAStaged }, "rdma-staged", "gdr", "gdrpc", "the machine could"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := small(t)
			tt.do(t, &s)
			e := pathOf(t, s, gpu, nic)
			require.Equal(t, [3]string{tt.path, tt.better, tt.step}, [3]string{e.Path, e.Better, e.Step}, e.Why)
			require.Contains(t, e.Why, tt.why)
		})
	}
}

func TestCapIPCLock(t *testing.T) {
	s := small(t)
	s.memlock = func() (soft, hard uint64, err error) { return 64 << 10, 64 << 10, nil }
	require.NoError(t, os.WriteFile(s.root.Path("proc/self/status"), []byte("CapEff:\t0000000000004000\n"), 0o644))
	require.Equal(t, "gdr", pathOf(t, s, "0000:18:00.0", "mlx5_0").Path)
}

// TestLibrary: a library that is there and lists nothing is told from one that is
// missing.
func TestLibrary(t *testing.T) {
	gone := fmt.Errorf("%w (ENOSYS)", ibverbs.ErrNoDevice)
	for err, want := range map[error]finding{
		nil:                 {State: yes},
		ibverbs.ErrNoDevice: {State: yes, Why: "installed; it lists no device"},
		&ibverbs.Error{Op: "get_device_list", Subject: "lib", Err: ibverbs.ErrNoDevice, Remedy: "r"}: {State: yes, Why: "installed; it lists no device"},
		&ibverbs.Error{Op: "get_device_list", Subject: "lib", Err: gone, Remedy: "r"}:                {State: yes, Why: "installed; it lists no device: " + gone.Error()},
		&ibverbs.Error{Op: "dlopen", Subject: "lib", Err: ibverbs.ErrNotSupported, Remedy: "r"}:      {State: no, Why: "ibverbs: dlopen lib: not supported", Remedy: "r"},
	} {
		require.Equal(t, want, library(err), "%v", err)
	}
}

// TestShort: a long reason is cut where a reader does not stumble.
func TestShort(t *testing.T) {
	place := "library: cannot open shared object file: No such file or directory"
	require.Equal(t, place, short(place))
	require.Equal(t, "cuda: no device ("+place+"; ... all of it by -json)", short("cuda: no device ("+place+"; "+place+"; "+place+")"))
	words := strings.Repeat("word ", 40)
	require.Equal(t, words[:longest-1]+"; ... all of it by -json", short(words))
	require.Equal(t, strings.Repeat("\u00e4", longest/2)+"; ... all of it by -json", short(strings.Repeat("\u00e4", longest)))
}

func TestProbeOutcomes(t *testing.T) {
	for err, want := range map[error]state{
		syscall.EBADF:              yes,
		syscall.EOPNOTSUPP:         no,
		syscall.EPROTONOSUPPORT:    no,
		ibverbs.ErrNotSupported:    no,
		errors.New("out of sorts"): unknown,
	} {
		require.Equal(t, want, dmaBufOutcome(nil, &ibverbs.Error{Op: "reg_dmabuf_mr", Subject: "x", Err: err}).State, err)
	}
}

// TestSchema holds docs/gdrinfo.md to the fields that there are.
func TestSchema(t *testing.T) {
	doc, err := os.ReadFile("../../docs/gdrinfo.md")
	require.NoError(t, err)
	_, doc2, ok := strings.Cut(string(doc), "### The machine")
	require.True(t, ok)
	aboutMachine, aboutServer, ok := strings.Cut(doc2, "### A server")
	require.True(t, ok)
	require.Equal(t, documented(aboutMachine), fields(reflect.TypeFor[report](), ""))
	require.Equal(t, documented(aboutServer), fields(reflect.TypeFor[answer](), ""))
}

func documented(text string) map[string]string {
	list := make(map[string]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (\\w+) \\|").FindAllStringSubmatch(text, -1) {
		list[m[1]] = m[2]
	}
	return list
}

// fields lists the JSON fields of a type and their JSON types.
func fields(t reflect.Type, at string) map[string]string {
	list := make(map[string]string)
	switch {
	case t == reflect.TypeFor[finding]():
		list[at] = "finding"
	case t.Kind() == reflect.Slice:
		return fields(t.Elem(), at+"[]")
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			name := t.Field(i).Tag.Get("json")
			if name == "" {
				continue
			}
			for k, v := range fields(t.Field(i).Type, strings.TrimPrefix(at+"."+name, ".")) {
				list[k] = v
			}
		}
	case t.Kind() == reflect.String:
		list[at] = "string"
	case t.Kind() == reflect.Bool:
		list[at] = "boolean"
	default:
		list[at] = "number"
	}
	return list
}
