# Every target needs Go, git and a C compiler (the race detector is C). What
# else a target needs it fetches itself, with its version pinned here.

GOLANGCI_VERSION = v2.15.0
XCADDY_VERSION   = v0.4.5
VULN_VERSION     = v1.9.0
SBOM_VERSION     = v1.10.0
CADDY_VERSION    = $(shell go list -m -f '{{.Version}}' github.com/caddyserver/caddy/v2)

GOLANGCI = .bin/golangci-lint-$(GOLANGCI_VERSION)
XCADDY   = .bin/xcaddy-$(XCADDY_VERSION)
VULN     = .bin/govulncheck-$(VULN_VERSION)
SBOM     = .bin/cyclonedx-gomod-$(SBOM_VERSION)

# The slowest package first, so that the others run beside it.
ALL       = ./test/e2e ./...
PKG       = $(ALL)
TESTFLAGS =
FUZZTIME  = 30s
BENCH     = .
BENCHTIME = 1s
BENCHFLAGS =
SOAK      = 10m
CROSS     = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

.PHONY: help run build test test-ollama lint vulncheck xcaddy cross release-check fuzz bench microbench soak budget clean
.DEFAULT_GOAL := help

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

run: build ## Run Caddyfile.example on :8080, a simulated backend included
	@scripts/run.sh bin/caddy Caddyfile.example

build: ## Build bin/caddy, a Caddy with this module and the simulator
	go build -o bin/caddy ./cmd/caddy

test: ## Run all tests with the race detector (PKG=./sse TESTFLAGS='-run Split')
	@scripts/testdeps.sh
	go run ./scripts/gotest -race -count=1 -timeout 15m $(TESTFLAGS) $(PKG)
ifeq ($(PKG),$(ALL))
	@$(MAKE) --no-print-directory soak SOAK=20s
	@$(MAKE) --no-print-directory test-ollama
endif

test-ollama: ## Test before a real Ollama, which is built once (some minutes)
	@scripts/testdeps.sh
	@ollama=$$(scripts/ollama.sh) && LLMSTREAM_OLLAMA=$$ollama \
		go run ./scripts/gotest -race -count=1 -timeout 15m -tags ollama $(TESTFLAGS) ./test/ollama/...

lint: $(GOLANGCI) ## Run go vet and golangci-lint
	go vet ./...
	$(GOLANGCI) run ./...

vulncheck: ## Ask Go's vulnerability database, where it can be reached
	@scripts/vulncheck.sh $(VULN) $(VULN_VERSION)

# With a version, even one that does not exist, the checkout is taken without
# asking a module proxy which versions there are.
xcaddy: $(XCADDY) ## Build bin/caddy-xcaddy from this checkout, as users build theirs
	$(XCADDY) build $(CADDY_VERSION) --output bin/caddy-xcaddy \
		--with github.com/caddy-llmstream/caddy-llmstream@v0.0.0=.

cross: ## Compile for other systems (CROSS=windows/arm64)
	@scripts/cross.sh $(CROSS)

release-check: $(XCADDY) $(SBOM) ## Check that what is committed can be released; publish nothing
	@scripts/release-check.sh $(XCADDY) $(SBOM) $(CADDY_VERSION)

fuzz: ## Run every fuzz target for FUZZTIME (30s) each
	@scripts/fuzz.sh $(FUZZTIME) $(PKG)

soak: ## Run clients, faults and reloads for SOAK (10m), and report
	SOAK=$(SOAK) go test -race -count=1 -timeout 24h -v -run '^TestSoak$$' ./test/soak

budget: ## Measure what one of each thing costs that is held, and 10,000
	BUDGET=10000 go test -count=1 -v -run '^TestBudget$$' ./test/budget

bench: build ## Compare cost with a plain Caddy's (FULL=1 PEERS=1 RUNS=3)
	go build -o bin/bench ./bench
	bin/bench -caddy bin/caddy -runs $(or $(RUNS),1) $(if $(FULL),-full) $(if $(PEERS),-peers) $(BENCHFLAGS)

microbench: ## Run Go's benchmarks (PKG=./internal/sse BENCH=Parser BENCHTIME=5s)
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem $(PKG)

clean: ## Remove what was built, the tools too
	rm -rf bin .bin

# The version is part of the file name: another one is another file, so a pin
# that moves takes effect at the next run.
$(GOLANGCI):
	scripts/gotool.sh github.com/golangci/golangci-lint/v2/cmd/golangci-lint $(GOLANGCI_VERSION) $@

$(XCADDY):
	scripts/gotool.sh github.com/caddyserver/xcaddy/cmd/xcaddy $(XCADDY_VERSION) $@

$(SBOM):
	scripts/gotool.sh github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod $(SBOM_VERSION) $@
