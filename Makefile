# Rackbus. "make help" lists the targets. Every verify-x changes nothing and has a fix-x that repairs.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  := -X github.com/rackbus/rackbus/pkg/telemetry.buildVersion=$(VERSION)
# Every folder under a cmd/ is a program of that name.
PROGRAMS := $(addprefix ./,$(wildcard cmd/* services/*/cmd/* sim/cmd/*))
PACKAGES  = $$(go list -m -f '{{.Dir}}/...')
GOLANGCI := bin/tools/golangci-lint

##@ Everyday

.PHONY: help
help: ## print this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build all programs into bin/
	@mkdir -p bin
	go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/ $(PROGRAMS)

.PHONY: test
test: ## run all tests with the race detector, and fuzz the readers of what others send for 5 s each
	scripts/test.sh -race
	scripts/fuzz.sh 5s FuzzManifest FuzzPLDM FuzzTar FuzzTask FuzzInventory
	@$(MAKE) --no-print-directory test-helm test-alerts

# These have modules outside of the workspace, for the code of Helm and Prometheus that they test with. Their results
# are not cached: what they test lies outside of these modules.
.PHONY: test-helm test-alerts
test-helm: ## lint and render the Helm chart, check what comes out (the first time compiles Helm: 90 s of one core)
	GOWORK=off go -C tools/helm test -count=1 ./...
test-alerts: ## check the alerts, the dashboard and the runbook against docs/metrics.md
	GOWORK=off go -C tools/promql test -count=1 ./...

# The packages whose tests have the flag -long.
LONG := ./pkg/admission ./pkg/ssh ./test/deploy ./services/jobs ./services/compute-agent ./services/powershelf-agent ./services/switch-agent \
	$(addprefix ./services/switch-agent/internal/,fabric security/certificate security/factoryreset security/password)

.PHONY: test-long
test-long: ## run whole what make test takes samples of, such as a crash in every stage
	go test -race -count=1 -timeout=30m $(LONG) -args -long
	go test -count=1 ./pkg/agent -run TestA10 -args -long

.PHONY: fuzz
fuzz: TIME ?= 60s
fuzz: ## run every fuzz target for a minute (TIME= for longer)
	scripts/fuzz.sh $(TIME)

.PHONY: check
check: verify-fmt vet verify-lint verify-proto verify-workspace verify-tidy test ## run everything a change must pass

.PHONY: demo
demo: build ## show a simulated rack at work (KEEP=1 leaves it running)
	go run ./test/cmd/rackdemo $(if $(KEEP),-keep)

.PHONY: bench
bench: build ## measure throughput and latency on this machine
	go run ./test/cmd/rackbench

.PHONY: crash
crash: N ?= 300
crash: ## kill processes at random under N updates (300) and check every job (SEED= optional)
	go test ./test/crash -run TestCrash -count=1 -timeout=0 -v \
		-args -crash.n=$(N) $(if $(SEED),-crash.seed=$(SEED))

.PHONY: crash-cancel
crash-cancel: N ?= 500
crash-cancel: ## stop N jobs (500) at random moments while processes are killed, and check every job (SEED= optional)
	go test ./test/crash -run TestCancelStorm -count=1 -timeout=0 -v \
		-args -crash.cancels=$(N) $(if $(SEED),-crash.seed=$(SEED))

.PHONY: clean
clean: ## remove what was built
	rm -rf bin

##@ Repairs

.PHONY: fmt fix-fmt
fmt: fix-fmt
fix-fmt: $(GOLANGCI) ## format Go code and sort imports (also: make fmt)
	$(GOLANGCI) fmt $(PACKAGES)

.PHONY: proto fix-proto
proto: fix-proto
fix-proto: ## format .proto files and generate their Go code (also: make proto)
	scripts/proto.sh fix

.PHONY: fix-workspace
fix-workspace: ## list all modules in go.work, give all the same go line
	scripts/workspace.sh fix

.PHONY: tidy fix-tidy
tidy: fix-tidy
fix-tidy: ## run go mod tidy in every module (also: make tidy)
	scripts/tidy.sh fix

.PHONY: fix-lint
fix-lint: $(GOLANGCI) ## apply the repairs that the linters know
	$(GOLANGCI) run --fix $(PACKAGES)

##@ Checks

.PHONY: vet
vet: ## run go vet
	go vet $(PACKAGES)

.PHONY: verify-fmt
verify-fmt: $(GOLANGCI) ## check format and imports
	$(GOLANGCI) fmt --diff $(PACKAGES)

.PHONY: lint verify-lint
lint: verify-lint
verify-lint: $(GOLANGCI) ## run the linters (also: make lint)
	$(GOLANGCI) run $(PACKAGES)

.PHONY: verify-proto
verify-proto: ## lint .proto files, check that the generated code is theirs
	scripts/proto.sh verify

.PHONY: verify-workspace
verify-workspace: ## check go.work and the go lines
	scripts/workspace.sh verify

.PHONY: verify-tidy
verify-tidy: ## check go.mod and go.sum of every module
	scripts/tidy.sh verify

$(GOLANGCI): tools/golangci/go.mod
	GOWORK=off go -C tools/golangci build -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
