# What can be made here: see `make help`. Each target installs the Debian packages it needs when it may (as root or by sudo
# without a password), and otherwise prints the command that does.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
PREFIX  ?= /usr/local
GO      ?= go
# Leaves out what cli would write manuals with: they are cmdline's, and its tables are made at every start.
TAGS    ?= urfave_cli_no_docs
# How long each fuzz target runs.
FUZZTIME ?= 3s
# What picks the cases of long suites under the race detector: half of them, others at another commit.
SEED    ?= $(shell git rev-parse --short HEAD 2>/dev/null)
# How long make soak goes on, in seconds, and which of its steps it runs (all).
SOAK_SECONDS ?= 1200
STEP    ?=
# Which halves of the benchmark to run: host, bed or both.
BENCH   ?= host bed

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
NEED        := .ci/need
SCRIPTS      = $(shell git ls-files --cached --others --exclude-standard | xargs grep -lE '^\#!.*\bbash$$' 2>/dev/null)

# Whether there is a C compiler, with a C library's headers.
COMPILES    := echo '\#include <stdlib.h>' | gcc -fsyntax-only -x c - 2>/dev/null

.PHONY: build
build: static ## the program, ./gdrcp; with verbs where there is a C compiler, for TCP only where not
	@$(COMPILES) || $(NEED) gcc:gcc libc6-dev || echo "make: no C compiler: building without verbs" >&2
	CGO_ENABLED=$$($(COMPILES) && echo 1 || echo 0) $(GO) build -trimpath -tags '$(TAGS)' -ldflags '-X main.version=$(VERSION)' -o gdrcp .

# What --bootstrap copies to hosts of another architecture, or with a C library that is too old for ./gdrcp. It is looked for
# beside the program and in ../lib/gdrcp.
STATIC_ARCHS := amd64 arm64
.PHONY: static
static: $(STATIC_ARCHS:%=static-%)
static-%:
	CGO_ENABLED=0 GOOS=linux GOARCH=$* $(GO) build -trimpath -tags '$(TAGS)' -ldflags '-s -w -X main.version=$(VERSION)' -o gdrcp-static-linux-$* .

.PHONY: man
man: build ## the manual pages, in bin/man
	rm -rf bin/man
	./gdrcp man-pages bin/man

# To a file of its own first: a program that fails leaves docs/cli.md as it is.
.PHONY: docs
docs: gcc ## docs/cli.md, from the definitions of the commands
	mkdir -p bin
	$(GO) run -tags '$(TAGS)' . cli-reference >bin/cli.md
	mv bin/cli.md docs/cli.md

.PHONY: completions
completions: build ## what completes command lines in bash, zsh and fish, in bin/completions
	rm -rf bin/completions
	mkdir -p bin/completions
	./gdrcp completion bash >bin/completions/gdrcp
	./gdrcp completion zsh >bin/completions/_gdrcp
	./gdrcp completion fish >bin/completions/gdrcp.fish

.PHONY: install
install: build man completions ## the program, its manual pages and completions, and a systemd unit, under $(DESTDIR)$(PREFIX)
	install -D -m 755 gdrcp $(DESTDIR)$(PREFIX)/bin/gdrcp
	install -d $(DESTDIR)$(PREFIX)/lib/gdrcp
	install -m 755 $(STATIC_ARCHS:%=gdrcp-static-linux-%) $(DESTDIR)$(PREFIX)/lib/gdrcp/
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 bin/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -D -m 644 bin/completions/gdrcp $(DESTDIR)$(PREFIX)/share/bash-completion/completions/gdrcp
	install -D -m 644 bin/completions/_gdrcp $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_gdrcp
	install -D -m 644 bin/completions/gdrcp.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/gdrcp.fish
	@$(MAKE) --no-print-directory install-service

.PHONY: install-service
install-service: # the systemd unit of that program, the user it runs as, and an example access file
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's,/usr/local/bin/gdrcp,$(PREFIX)/bin/gdrcp,' packaging/gdrcp.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/gdrcp.service
	chmod 644 $(DESTDIR)$(PREFIX)/lib/systemd/system/gdrcp.service
	install -D -m 644 packaging/gdrcp.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/gdrcp.conf
	install -D -m 644 packaging/access.example $(DESTDIR)$(PREFIX)/share/doc/gdrcp/access.example

.PHONY: demo
demo: build ## copies a real tree and a checkpoint over TCP, both ways, and checks them again with other tools
	tests/demo/demo

.PHONY: demo-rdma
demo-rdma: build bed ## the same over RDMA, on Soft-RoCE and Soft-iWARP in a virtual machine
	tests/demo/demo-rdma

.PHONY: picture
picture: build ## docs/picture/copy.svg, the README's picture, from a real run of the program: needs 4 GB in /dev/shm
	$(GO) run ./tests/picture ./gdrcp docs/picture/copy.svg

.PHONY: bench
bench: build ## ratios to rsync, scp, ib_write_bw and rcopy, in one run (BENCH=host or BENCH=bed for one half)
	tests/bench/run $(BENCH)

.PHONY: test
test: lint test-go test-race test-nocgo test-bed fuzz instructions ## everything that a change has to pass: within 40 minutes on 2 CPUs

.PHONY: check
check: lint gcc test-tools ## for between two edits: the lint, and the short tests of what is no whole program; within 3 minutes
	$(GO) test -short $$($(GO) list ./... | grep -v '/tests/')

.PHONY: test-all
test-all: export GDRCP_TEST_FULL = 1
test-all: ## the same with full file counts and sizes, a minute for each fuzz target, and every row of the benchmark once
	$(MAKE) test FUZZTIME=60s
	$(MAKE) bench-short

.PHONY: instructions
instructions: build ## the instructions that a copy takes for each chunk and each small file, held against a limit
	@$(NEED) valgrind:valgrind
	tests/instructions/run ./gdrcp

.PHONY: soak
soak: gcc ## random trees, options and faults for SOAK_SECONDS (1200); SEED=X picks others, STEP=N runs one of them again
	GDRCP_TEST_SEED=$(SEED) GDRCP_SOAK_SECONDS=$(SOAK_SECONDS) GDRCP_SOAK_STEP=$(STEP) $(GO) test -vet=off -count=1 -v -timeout 0 ./tests/soak

.PHONY: bench-short
bench-short: build # both halves of the benchmark with little to move: that they come to their ends
	tests/bench/run --short

.PHONY: fresh
fresh: ## `make demo` and `make test` on this commit in a minimal Debian 12 that has git, make, gcc and Go: needs root
	.ci/fresh make --keep-going demo test vuln

# The packages whose tests take longest come first, and the rest runs beside them. Most tests wait for others more than they
# work, so that one package more than there are processors runs at once. `go vet` is the lint's: what `go test` runs of it, it
# would run anew for each kind of build.
SO_MANY := -p $$(($$(nproc) + 1))
# What starts no goroutine, nor do its tests: the race detector has nothing to look at there.
NO_GOROUTINE := internal/(cli/args|cmdline|dirsync|filter|inherited|pattern|printable|served)|rdma|xfer/internal/(credit(/credittest)?|wire)
# For tests that run once more: they need not wait for the disk again.
IN_MEMORY := $(shell [ "$$(df --output=avail -B1G /dev/shm 2>/dev/null | tail -n 1)" -ge 8 ] 2>/dev/null && echo TMPDIR=/dev/shm)

.PHONY: test-go
test-go: gcc test-tools ## the tests that need no device
	.ci/go-test './tests/program ./xfer ./...' $(SO_MANY)

.PHONY: test-race
test-race: gcc test-tools # without what starts no goroutine, and the tests of whole programs, to which this would add nothing
	$(IN_MEMORY) GDRCP_TEST_SEED=$(SEED) .ci/go-test "./xfer $$($(GO) list ./... | grep -Ev '^gdrcp/($(NO_GOROUTINE)|tests/.*)$$' | tr '\n' ' ')" $(SO_MANY) -race -short -timeout 20m

.PHONY: test-nocgo
test-nocgo: NOCGO = ./internal/inherited ./gpu ./rdma/verbs
test-nocgo: test-tools # what is built otherwise without cgo, and of the rest what shows that it copies
	CGO_ENABLED=0 $(GO) vet $(NOCGO)
	CGO_ENABLED=0 .ci/go-test '$(NOCGO)' $(SO_MANY) -short
	CGO_ENABLED=0 .ci/go-test './tests/program ./xfer ./internal/cli' $(SO_MANY) -short -run '^Test(Devices|PushAndPull|SingleFile|Encrypted|Streams|Targets|Transports|JSON)'

.PHONY: test-bed
test-bed: gcc test-tools ## the bed's own test, and the tests that need RDMA devices, in it
	@if tests/bed/setup.sh; then \
	  $(NEED) pgrep:procps losetup:mount mkfs.xfs:xfsprogs && \
	    .ci/again tests/bed/selftest && tests/bed/run-tests && .ci/again tests/program/two-guests && \
	    if [ "$$GDRCP_TEST_FULL" = 1 ]; then tests/program/power-cut; fi; \
	elif [ $$? = 2 ] && [ -z "$$CI" ]; then \
	  echo "make: the tests that need RDMA devices were LEFT OUT (with CI set this is an error)" >&2; \
	else \
	  exit 1; \
	fi

# The tests of package gpu, with the fake driver that they start with, and of whole copies, with the program. They run without
# Go, a compiler or a network.
GPU_TEST := GDRCP_REQUIRE=gpu GDRCP_FAKE_CUDA_LIBRARY=bin/gpu-fake.so bin/gpu.test
GPU_COPY := GDRCP_REQUIRE=gpu GDRCP_BINARY=bin/gdrcp bin/gpu-copy.test

.PHONY: gpu-test
gpu-test: GPU_ARGS = -test.v -test.run '^TestReal'
gpu-test: COPY_ARGS = -test.v -test.run '^TestReal'
gpu-test: gpu-run ## the tests that need a GPU; without one, what to copy to a machine that has one, and to run there

.PHONY: gpu-bench
gpu-bench: GPU_ARGS = -test.run '^$$' -test.bench 'HashDevice|PinnedCopy'
gpu-bench: COPY_ARGS = -test.run '^$$' -test.bench StagedTransfer -test.benchtime 1x
gpu-bench: gpu-run ## digests and copies of a GPU's memory, in GB/s, and what staging costs a copy over TCP; likewise

.PHONY: gpu-run
gpu-run: gcc
	$(GO) test -c -o bin/gpu.test ./gpu
	$(GO) test -c -o bin/gpu-copy.test ./tests/gpu
	CGO_ENABLED=1 $(GO) build -trimpath -tags '$(TAGS)' -ldflags '-X main.version=$(VERSION)' -o bin/gdrcp .
	gpu/fakecuda/build bin/gpu-fake.so
	@if ls /dev/nvidia[0-9]* >/dev/null 2>&1; then \
	  status=0; $(GPU_TEST) $(GPU_ARGS) || status=1; $(GPU_COPY) $(COPY_ARGS) || status=1; exit $$status; \
	else \
	  printf 'make: there is no GPU here (no /dev/nvidia0). Where there is one, and this architecture and libc:\n' >&2; \
	  printf '  copy bin/gpu.test, bin/gpu-copy.test, bin/gdrcp and bin/gpu-fake.so there, to a folder bin, and beside that run\n' >&2; \
	  printf '  %s\n' "$(GPU_TEST) $(GPU_ARGS)" "$(GPU_COPY) $(COPY_ARGS)" >&2; \
	fi

.PHONY: gpu-kernels
gpu-kernels: ## makes the kernels of gpu/blake3.cu anew, as PTX and machine code: needs ptxas, and says where that is
	@$(NEED) clang-16
	gpu/ptx
	gpu/cubins

.PHONY: fuzz
fuzz: gcc ## every fuzz target for FUZZTIME (3s)
	.ci/fuzz $(FUZZTIME)

.PHONY: lint
lint: gcc ## gofmt, vet, staticcheck, shellcheck, the import rules, and whether the GPU's kernels are those of their source
	@$(NEED) shellcheck
	@if [ -n "$$CI" ]; then $(NEED) clang-16; fi
	@gpu/ptx --check
	@gpu/cubins --check
	@unformatted=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "gofmt would change:" $$unformatted >&2; exit 1; fi
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	shellcheck -x $(SCRIPTS)
	$(GO) test ./tests/lint

.PHONY: figures
figures: gcc ## how large packages and types are, and how plain the English, against limits and goals (the lint holds them)
	$(GO) test -count=1 -v -run TestFigures ./tests/lint

.PHONY: vuln
vuln: ## known vulnerabilities in what the program uses; fails where nothing can be checked, but under CI only says so
	@status=0; .ci/vuln || status=$$?; if [ $$status = 77 ] && [ -n "$$CI" ]; then status=0; fi; exit $$status

.PHONY: bed
bed: # the virtual machine for the RDMA tests
	tests/bed/setup.sh

# What the tests start. They do with less where shells and formatters of manuals are missing, but not under CI.
.PHONY: test-tools
test-tools:
	@$(NEED) ssh:openssh-client sshd:openssh-server rsync:rsync ip:iproute2 b3sum:b3sum zstd:zstd strace:strace mkfs.ext4:e2fsprogs mkfs.btrfs:btrfs-progs losetup:mount
	@if [ -n "$$CI" ]; then $(NEED) zsh:zsh fish:fish man:man-db groff:groff-base mandoc:mandoc systemd-analyze:systemd; fi

.PHONY: gcc
gcc:
	@$(NEED) gcc:gcc libc6-dev

.PHONY: clean
clean: ## removes what was built here (not the caches ~/.cache/gdrcp-bed and ~/.cache/gdrcp-bench)
	rm -rf gdrcp gdrcp-static-linux-* bin

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14
