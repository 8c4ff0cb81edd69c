# Plain go commands with names. `make help` lists them.

GO          ?= go
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 20000x
ARGS        ?=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: ptx help build test race nocgo lint fuzz check-imports demo bench generate test-gpu gpu-kit test-rxe test-hardware bench-rxe ci

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## compile every package and command
	$(GO) build ./...

test: ## run all tests (under 5 minutes on 2 cores)
	$(GO) test -timeout 5m ./...

test-gpu: ## run the tests that need an NVIDIA GPU, on one (needs its driver and a C compiler)
	CGO_ENABLED=1 GDR_TEST_REQUIRE=cuda $(GO) test -count=1 -timeout 10m ./gpubuf/... ./interop/gpu
	CGO_ENABLED=1 GDR_TEST_DEVICE=cuda:0 $(GO) test -count=1 -timeout 10m -run '^TestLanding|^TestOffer[LW]|^TestReady|^TestStag' ./conn
	CGO_ENABLED=1 GDR_TEST_DEVICE=cuda:0 $(GO) test -count=1 -timeout 10m -skip 'Verbs|AttemptsInside|/verbs$$' .

gpu-kit: ## build what runs the GPU tests and measurements on a machine without Go, into bin/gpu-kit (its ./run)
	@interop/gpu/kit/build $(ARGS)

race: ## run all tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -timeout 10m ./...

nocgo: ## build and run the tests without cgo
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 $(GO) test -short -timeout 5m ./...

lint: ## gofmt, go vet, staticcheck
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "gofmt: not formatted:"; echo "$$files"; exit 1; fi
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

# `go test -list` prints the names of a package's targets, then "ok" and the package.
fuzz: ## run each fuzz target for FUZZTIME (20000 inputs; FUZZTIME=1m for a minute)
	@list=$$($(GO) test -list '^Fuzz' ./...) || { echo "$$list"; exit 1; }; \
	echo "$$list" | awk '/^Fuzz/ { names = names " " $$1 } \
		/^ok/ { n = split(names, a, " "); for (i = 1; i <= n; i++) print $$2, a[i]; names = "" }' | \
	while read -r pkg name; do \
		echo "fuzz $$pkg $$name"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x "$$pkg" </dev/null || exit 1; \
	done

check-imports: ## imports go one way, heavy dependencies stay in cmd and examples
	$(GO) run ./internal/tools/checkimports

demo: ## two processes: a file as an attachment into device memory and back (ARGS="-json", ARGS=FILE)
	@$(GO) run ./examples/quickstart $(ARGS)

bench: ## throughput, call and idle costs beside bare TCP and stock gRPC (ARGS="--rounds 11")
	@$(GO) run ./cmd/gdrperf $(ARGS)

test-rxe: ## the suites on a real RDMA device of the kernel, Soft-RoCE under QEMU (ARGS="-run pingpong")
	@$(GO) run ./interop/rxe $(ARGS)

bench-rxe: ## the same machine: the verbs provider beside perftest and librdmacm (ARGS="-rounds 3")
	@$(GO) run ./interop/rxe -bench $(ARGS)

test-hardware: ## everything on this machine's NICs and GPUs, into hardware-report.txt (GDR_TEST_REQUIRE=verbs,cuda)
	@interop/hardware/report $(ARGS)

PTX = $(or $(CLANG),clang++-14) -x cuda -nocudainc -nocudalib --cuda-device-only --cuda-gpu-arch=sm_70 \
	-fdeclspec -Xclang -target-feature -Xclang +ptx63 -include crc32c_decls.h -O3 -S crc32c.cu

ptx: ## regenerate the GPU's checksum kernel (needs clang 14; CLANG= names another)
	cd gpubuf/cuda && $(PTX) -o $(or $(PTX_OUT),crc32c.ptx)

generate: ## regenerate the protobuf code (needs protoc)
	GOBIN=$(CURDIR)/bin $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
	GOBIN=$(CURDIR)/bin $(GO) install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
	PATH="$(CURDIR)/bin:$$PATH" $(GO) generate ./...

ci: lint check-imports build test nocgo race test-rxe ## what CI runs; the tests include the fuzz corpora
