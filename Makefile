# gpuslice: build, see, test. `make help` lists what there is.
SHELL := /bin/bash
CARGO ?= cargo
TARGET ?= target
PREFIX ?= /usr

# Cargo has jobs of its own, and would report that it cannot reach those of make.
unexport MAKEFLAGS MFLAGS

# The shim has no standard library. Cargo unites the features of all that it builds at once,
# which would bring it in through the others' dependencies: so the shim is always built alone.
SHIM := -p gpuslice-shim
REST := --workspace --exclude gpuslice-shim

.DEFAULT_GOAL := build
.PHONY: help build sim clients containers demo test engines loaders hostile soak branches law guard limits check check-all check-flaky format clippy loom miri docs deny report bench fuzz readers gpu-kit goldens dist packages-test release-check install install-sim uninstall clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: preflight ## gpuslice, gpuslice-hook and libgpuslice.so in target/release, the simulated driver in target/sim
	$(CARGO) build --release --locked $(SHIM)
	hook/cli/build.sh
	hook/oci/build.sh
	tests/sim/build.sh $(TARGET)/sim

# What the demo runs: it starts no containers.
.PHONY: build-demo
build-demo: preflight
	$(CARGO) build --release --locked $(SHIM)
	hook/cli/build.sh
	tests/sim/build.sh $(TARGET)/sim

.PHONY: preflight
preflight:
	@tests/setup.sh build

clients: preflight ## the real programs that the tests and the demo run
	tests/setup.sh clients
	tests/setup.sh examples
	tests/setup.sh monitoring

containers: preflight ## the container runtimes that the tests start
	tests/setup.sh containers

demo: build-demo ## two engines on one simulated card, and three real programs: bare, in a slice, on unified memory
	tests/setup.sh demo
	tests/demo/demo.sh

.PHONY: picture
picture: build ## packaging/picture.svg: what the first part of the demo prints on a terminal; top.svg of the handbook
	tests/setup.sh demo
	python3 tests/demo/picture.py packaging/picture.svg
	$(CARGO) test --locked -p gpuslice --test cli -- top::picture --ignored

# Two for each processor: many tests wait for the processes that they start.
.PHONY: test-native
test-native: export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))
test-native: build clients containers
	$(CARGO) test --locked $(REST)

test: test-native aarch64 ## every test that needs no GPU

.PHONY: aarch64
aarch64: build ## the library for 64-bit Arm, under an emulator
	tests/aarch64/run.sh

engines: build clients ## how engines size themselves, by vLLM's own files from PyPI, in 1,000 races
	$(TARGET)/clients-venv/bin/python tests/engines/vendor.py $(TARGET)/engines/vendor
	$(CARGO) test --locked -p gpuslice-suite --test suite -- engines:: --ignored --nocapture --test-threads 1

loaders: build clients ## model files of 2 GiB, and PyTorch's loaders: nothing is left in the page cache
	tests/setup.sh loaders
	$(CARGO) test --locked -p gpuslice-suite --test suite -- page_cache::loaders page_cache::behind --ignored --nocapture --test-threads 1

hostile: build containers ## 2,000 container starts while another process swaps /etc: nothing is written or run on the host
	GPUSLICE_HOSTILE_STARTS=1000 $(CARGO) test --locked -p gpuslice-containers --test containers -- race hostile --nocapture

soak: build ## a web server, a compiler and engines under the preload, SOAK seconds each (400; 9600 for eight hours): nothing grows
	python3 tests/soak/soak.py $(or $(SOAK),400) $(TARGET)
	python3 tests/soak/engines.py $(or $(SOAK),400) $(TARGET)

branches: build clients ## accounting, limits and races of the suite on every driver branch
	for branch in 535 550 580 615; do \
		runtime_13=$$([ $$branch -lt 580 ] || echo identity::); \
		GPUSLICE_SUITE_BRANCH=$$branch $(CARGO) test --locked -p gpuslice-suite --test suite -- enforcement:: idle_memory:: graphs:: \
			budgets:: peers:: headroom:: cuda:: $$runtime_13 || exit 1; \
	done

law: build ## the ledger's law for LAW random programs (3000, ten minutes) and RESIZES resizes (10,000), and 20,000 SIGKILLs in the driver
	GPUSLICE_LAW=$(or $(LAW),3000) GPUSLICE_RESIZES=$(or $(RESIZES),10000) GPUSLICE_KILLS=10000 $(CARGO) test --locked -p gpuslice-suite --test suite -- limits::law limits::resize limits::kills

guard: build ## the guard: a thousand signals in time, and its cost with 64 slices
	$(CARGO) test --locked -p gpuslice --test cli -- guard:: --ignored --nocapture --test-threads 1

.PHONY: faults
faults: build clients ## the faults table: each kind of fault up to FAULTS times (200); also target/report/faults.json
	rm -rf $(TARGET)/faults
	status=0; GPUSLICE_FAULTS=$(or $(FAULTS),200) $(CARGO) test --locked -p gpuslice-suite --test faults || status=$$?; \
	$(CARGO) test --locked -p gpuslice-suite --test faults -- --ignored --exact table::report --nocapture && exit $$status

.PHONY: claims
claims: build ## 10,000 random claims of Kubernetes on 100 simulated nodes, and what 1,000 drivers ask of the API server
	$(CARGO) test --locked -p gpuslice-dra --test dra -- scale:: --ignored --nocapture --test-threads 1

.PHONY: cluster cluster-programs
cluster: $(if $(KUBE_BIN),build containers cluster-programs) ## claims on Kubernetes' own programs: KUBE_BIN=DIR make cluster (tests/cluster/README.md)
	TARGET=$(TARGET) tests/cluster/run.sh $(STEPS)

cluster-programs:
	$(CARGO) build --locked -p gpuslice-dra -p gpuslice-node
	tests/setup.sh examples

limits: build ## the driver's limits of 10,000 killed containers: nothing is left in the cgroups above
	$(CARGO) test --locked -p gpuslice-suite --test suite -- --ignored --exact driver::limit::no_guarantee_is_left_after_ten_thousand_containers

check-flaky: build clients containers ## the whole suite QUIET times (10), and BUSY times (5) beside four busy loops
	tests/flaky.py $(or $(QUIET),10) $(or $(BUSY),5) $(REST)

check: preflight format ## what CI runs
	@# Clippy waits for processors, and what is installed waits for the network.
	$(MAKE) --jobs=2 --output-sync=target clippy installed build
	@# The tests also wait for processes. The others take the processor meanwhile, and each builds in its own folder.
	@nice -n 19 $(MAKE) loom miri aarch64 >$(TARGET)/beside-tests.log 2>&1 & beside=$$!; \
	$(MAKE) test-native || { kill $$beside; exit 1; }; \
	wait $$beside || { cat $(TARGET)/beside-tests.log; exit 1; }; \
	grep -E '^test result|not run|passed' $(TARGET)/beside-tests.log
	$(MAKE) --jobs=2 --output-sync=target docs deny fuzz-smoke

# One after another, because they share apt and the folder of tools.
.PHONY: installed
installed: preflight
	for part in clients examples monitoring containers deny fuzz book; do tests/setup.sh $$part || exit 1; done
	tests/aarch64/setup.sh $(TARGET)/aarch64-tools

check-all: check branches ## the same, and every driver branch, old C library (Ubuntu 16.04 to 20.04, Debian 11), engine and way to a slice
	$(CARGO) test --locked -p gpuslice-containers --test containers matrix -- --ignored --test-threads 1
	$(MAKE) limits
	$(MAKE) claims
	$(MAKE) faults FAULTS=40
	GPUSLICE_LIMITED_STARTS=1000 $(CARGO) test --locked -p gpuslice-containers --test containers -- driver_limits --nocapture
	$(CARGO) test --locked -p gpuslice-suite --test suite -- old_userlands:: project::gpu_kit:: --ignored

format:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --locked $(SHIM) -- -D warnings
	$(CARGO) clippy --locked $(REST) --all-targets -- -D warnings

loom: ## the ledger's protocol, every interleaving of two processes and bounded ones of three
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET)/loom $(CARGO) test --locked --release -p gpuslice-config ledger

miri: ## the pure code under miri, where a nightly toolchain has it or can get it
	@$(CARGO) +nightly miri --version >/dev/null 2>&1 || rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1 || true
	@if $(CARGO) +nightly miri --version >/dev/null 2>&1; then \
		PROPTEST_CASES=4 MIRIFLAGS=-Zmiri-disable-isolation CARGO_TARGET_DIR=$(TARGET)/miri \
			$(CARGO) +nightly miri test --locked -p gpuslice-config --lib; \
	else echo "miri: not run, no nightly toolchain here has it"; fi

fuzz: ## every reader of what others write, FUZZ seconds each (600); the inputs that crash one are kept
	tests/fuzz/run.sh $(or $(FUZZ),600)

.PHONY: mutants
mutants: ## changes of config's code that none of its unit tests notices: target/mutants.out (MUTANTS="-f config/src/answer/view.rs": of a file)
	tests/setup.sh mutants
	CARGO_PROFILE_TEST_DEBUG=0 $(TARGET)/tools/bin/cargo-mutants mutants -p gpuslice-config --output $(TARGET) $(MUTANTS)

.PHONY: coverage
coverage: build ## the lines of config and of the hook that their tests reach, as pages: target/coverage/html
	tests/setup.sh coverage
	$(TARGET)/tools/bin/cargo-llvm-cov llvm-cov --locked -p gpuslice-config -p gpuslice-host -p gpuslice-hook \
		--no-fail-fast --html --output-dir $(TARGET)/coverage

.PHONY: differential
differential: build ## random calls in a slice and without one for DIFFERENTIAL seconds (600), from the seed SEED (of the clock)
	GPUSLICE_DIFFERENTIAL=$(or $(DIFFERENTIAL),600) GPUSLICE_DIFFERENTIAL_SEED=$(or $(SEED),$$(date +%s)00) \
		$(CARGO) test --locked -p gpuslice-suite --test suite -- differential:: --nocapture

.PHONY: fuzz-smoke
fuzz-smoke: ## all fuzzers at once, for a minute
	FUZZ_TOGETHER=1 tests/fuzz/run.sh 60

.PHONY: fuzz-minimise
fuzz-minimise: ## adds to tests/fuzz/seeds what the corpora of `make fuzz` cover beyond them
	tests/fuzz/minimise.sh

.PHONY: book
book: ## the handbook as HTML: target/handbook
	tests/setup.sh book
	tests/handbook.sh $(TARGET)/tools/bin/mdbook $(TARGET)/handbook

# The packages have the handbook too. After `make book`, so does what `make install` installs.
dist: book

.PHONY: install-handbook
install: install-handbook
install-handbook:
	for page in $$(cd $(TARGET)/handbook 2>/dev/null && find . -type f); do \
		install -D -m 644 $(TARGET)/handbook/$$page $(INTO)/share/doc/gpuslice/html/$$page || exit 1; done

docs: book
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked $(SHIM) --no-deps --document-private-items
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked $(REST) --no-deps --document-private-items

deny:
	@tests/setup.sh deny
	$(TARGET)/tools/bin/cargo-deny --offline --locked check bans licenses sources

report: build containers ## what gpuslice costs, as a page in target/report (REPORT=quick, REPORT_SECTIONS="query alloc", PEER=/path/to/other.so PEER_ENV="NAME=VALUE ...")
	$(CARGO) run --quiet --locked -p gpuslice-report

bench: build ## what parts cost by themselves: the ledger, the commands for the page cache
	$(CARGO) bench --locked -p gpuslice-bench

readers: build clients containers ## that node and Java see a slice's memory too (installs both)
	tests/setup.sh readers
	$(CARGO) test --locked -p gpuslice-suite --test suite -- unified::meminfo_ --ignored
	$(CARGO) test --locked -p gpuslice-containers --test containers -- meminfo:: --ignored

gpu-kit: build ## the suite for a real GPU, with all it needs, in one folder: target/gpu-kit
	tests/gpu/pack.sh $(TARGET)/gpu-kit

goldens: build ## rewrite the generated files (man, completions, symbol table, manifests) from their sources
	UPDATE_GOLDENS=1 $(CARGO) test --locked -p gpuslice -p gpuslice-suite golden
	tests/setup.sh examples
	$(TARGET)/examples-venv/bin/python tests/chart/check.py write

# The architectures of the packages.
ARCHES ?= x86_64 aarch64

dist: ## deb, rpm, wheel, archive and image for glibc 2.17 and later, in target/dist/packages (one of ARCHES: ARCHES=x86_64)
	for arch in $(ARCHES); do packaging/dist/build.sh $$arch && packaging/dist/pack.sh $$arch || exit 1; done

packages-test: ## those packages in clean roots of Debian and Ubuntu: install, check, upgrade, remove (root)
	tests/setup.sh packages
	tests/packages/run.sh

release-check: ## what a release must pass: all packages from two clean clones, the same bytes, tested, and the notes
	packaging/dist/release-check.sh

# What is installed: a build's, or with DIST=target/dist/ARCH the binaries of the packages.
BINARIES ?= $(or $(DIST),$(TARGET)/release)
SIMULATOR ?= $(if $(DIST),$(DIST)/sim,$(TARGET)/sim)
BUILT := $(addprefix $(BINARIES)/,gpuslice gpuslice-hook libgpuslice.so)
# Files that name a path get that of this PREFIX.
HERE := sed -e 's,/usr/bin/gpuslice,$(PREFIX)/bin/gpuslice,g' -e 's,/usr/lib/gpuslice,$(PREFIX)/lib/gpuslice,g'
# For another prefix than /usr, the policy names both, also for a hook that is copied elsewhere.
POLICY := $(if $(filter-out /usr,$(PREFIX)),| sed 's/^\#\(library\|command\) = /\1 = /')
INTO = $(DESTDIR)$(PREFIX)
# Debian's zsh looks in vendor-completions, others in site-functions.
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions

install: ## what make has built, into $(DESTDIR)$(PREFIX); builds nothing
	@for file in $(BUILT); do [ -e $$file ] || \
		{ echo "make install: $$file is not built: run make first" >&2; exit 1; }; done
	install -D -m 755 -t $(INTO)/bin $(BINARIES)/gpuslice
	ln -sfn gpuslice $(INTO)/bin/gpusliced
	install -D -m 755 -t $(INTO)/bin $(BINARIES)/gpuslice-hook
	ln -sfn gpuslice-hook $(INTO)/bin/gpuslice-runtime
	install -D -m 644 -t $(INTO)/lib/gpuslice $(BINARIES)/libgpuslice.so
	install -d -m 755 $(INTO)/share/gpuslice/hooks.d $(INTO)/share/gpuslice/monitoring $(INTO)/lib/systemd/system $(INTO)/share/doc/gpuslice/examples
	@# Not where engines read hooks by themselves: `gpuslice runtime configure` puts them there.
	for file in packaging/hooks.d/*.json; do $(HERE) $$file >$(INTO)/share/gpuslice/hooks.d/$${file##*/} || exit 1; done
	for file in packaging/monitoring/*; do sed 's,/usr/share/gpuslice,$(PREFIX)/share/gpuslice,g' $$file >$(INTO)/share/gpuslice/monitoring/$${file##*/} || exit 1; done
	for file in packaging/systemd/*; do $(HERE) $$file >$(INTO)/lib/systemd/system/$${file##*/} || exit 1; done
	for file in packaging/examples/*; do $(HERE) $$file >$(INTO)/share/doc/gpuslice/examples/$${file##*/} || exit 1; done
	chmod 644 $(INTO)/share/gpuslice/hooks.d/*gpuslice* $(INTO)/share/gpuslice/monitoring/* $(INTO)/lib/systemd/system/gpuslice* $(INTO)/share/doc/gpuslice/examples/*
	install -D -m 644 packaging/tmpfiles.d/gpuslice.conf $(INTO)/lib/tmpfiles.d/gpuslice.conf
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" != 0 ]; then \
		echo "make install: /etc/gpuslice is left out: containers use it, and it needs root"; \
	elif [ ! -e $(DESTDIR)/etc/gpuslice/config.toml ]; then \
		install -d -m 755 $(DESTDIR)/etc/gpuslice && \
		$(HERE) packaging/etc/config.toml $(POLICY) >$(DESTDIR)/etc/gpuslice/config.toml && \
		chmod 644 $(DESTDIR)/etc/gpuslice/config.toml; fi
	install -D -m 644 -t $(INTO)/share/man/man1 packaging/man/*.1
	install -D -m 644 -t $(INTO)/share/man/man5 packaging/man/*.5
	install -D -m 644 -t $(INTO)/share/man/man8 packaging/man/*.8
	install -D -m 644 packaging/completions/gpuslice.bash $(INTO)/share/bash-completion/completions/gpuslice
	ln -sfn gpuslice $(INTO)/share/bash-completion/completions/gpusliced
	install -D -m 644 packaging/completions/_gpuslice $(DESTDIR)$(ZSHDIR)/_gpuslice
	install -D -m 644 packaging/completions/gpuslice.fish $(INTO)/share/fish/vendor_completions.d/gpuslice.fish
	ln -sfn gpuslice.fish $(INTO)/share/fish/vendor_completions.d/gpusliced.fish

install-sim: ## the simulated driver as well, for gpuslice run --sim on machines without a GPU
	@[ -e $(SIMULATOR)/gpuslice-sim ] || { echo "make install-sim: $(SIMULATOR)/gpuslice-sim is not built: run make first" >&2; exit 1; }
	install -D -m 644 -t $(INTO)/lib/gpuslice/sim $(SIMULATOR)/lib*.so.*
	for branch in $(notdir $(wildcard $(SIMULATOR)/[0-9]*)); do \
		install -D -m 644 -t $(INTO)/lib/gpuslice/sim/$$branch $(SIMULATOR)/$$branch/lib*.so.1 || exit 1; done
	install -D -m 755 -t $(INTO)/lib/gpuslice/sim $(SIMULATOR)/gpuslice-sim
	install -D -m 644 -t $(INTO)/lib/gpuslice/sim $(SIMULATOR)/nvidia_icd.json

uninstall: ## what make install and install-sim have put there; /etc/gpuslice stays (first: gpuslice runtime configure --remove)
	@[ -z "$(DESTDIR)" ] || exit 0; \
	for file in /etc/docker/daemon.json /etc/containerd/*.toml /etc/containerd/*.json \
		/etc/containerd/conf.d/*.toml /etc/crio/crio.conf /etc/crio/crio.conf.d/* \
		/etc/containers/containers.conf /etc/containers/containers.conf.d/* \
		/etc/containers/oci/hooks.d/*.json /etc/nvidia-container-runtime/config.toml \
		/etc/cdi/* /run/cdi/* /etc/k0s/*.toml /etc/k0s/*.json /etc/k0s/containerd.d/* \
		/var/lib/rancher/*/agent/etc/containerd/*.toml* \
		/var/lib/rancher/*/agent/etc/containerd/*.json \
		/var/snap/microk8s/current/args/*.toml /var/snap/microk8s/current/args/*.json; do \
		if [ -f "$$file" ] && grep -qs "$(PREFIX)/bin/gpuslice" "$$file"; then \
			echo "gpuslice: $$file still names gpuslice. Its engine will fail to start containers:" >&2; \
			echo "gpuslice: remove the lines that name it (after a reinstallation: gpuslice runtime configure --remove)" >&2; \
		fi; \
	done
	rm -f $(INTO)/bin/gpuslice $(INTO)/bin/gpusliced $(INTO)/bin/gpuslice-hook $(INTO)/bin/gpuslice-runtime
	rm -rf $(INTO)/lib/gpuslice $(INTO)/share/gpuslice $(INTO)/share/doc/gpuslice
	rm -f $(addprefix $(INTO)/lib/systemd/system/,$(notdir $(wildcard packaging/systemd/*))) $(INTO)/lib/tmpfiles.d/gpuslice.conf
	rm -f $(addprefix $(INTO)/share/man/man1/,$(notdir $(wildcard packaging/man/*.1)))
	rm -f $(addprefix $(INTO)/share/man/man5/,$(notdir $(wildcard packaging/man/*.5)))
	rm -f $(addprefix $(INTO)/share/man/man8/,$(notdir $(wildcard packaging/man/*.8)))
	rm -f $(addprefix $(INTO)/share/bash-completion/completions/,gpuslice gpusliced) $(DESTDIR)$(ZSHDIR)/_gpuslice
	rm -f $(addprefix $(INTO)/share/fish/vendor_completions.d/,gpuslice.fish gpusliced.fish)

clean:
	$(CARGO) clean
