# pod2role. Blank `make` prints the menu.

ARGS     ?=
CORES    ?= 2
FUZZTIME ?= 10s
FUZZED   ?= ./...
ONLY     ?=

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null)
ARCHS    ?= amd64 arm64
IMAGE    ?= pod2role:$(VERSION)
CA       ?= $(firstword $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem))
RELEASE   = CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X pod2role/cli.linkedVersion=$(VERSION)'

# The tools are built once for each state of tools/go.sum, whatever the files' times say, so that .cache can be kept.
TOOLS    := .cache/bin/$(shell cksum tools/go.sum | cut -d ' ' -f 1)
LINT     := $(TOOLS)/golangci-lint
VULN     := $(TOOLS)/govulncheck
HELM     := .cache/bin/helm-v3.19.5/helm
GOTEST   := .cache/bin/gotest

# STRICT: nothing may be skipped. It is so with CI set, and for a target that was asked for by name.
IN_CI    := $(filter-out false 0,$(CI))
STRICT   ?= 1
SKIPS     = $(if $(STRICT),,-allow-skips)
TESTFLAGS = -race -p $(CORES) -timeout 15m
NOT_RUN  := .cache/not-run
not_run   = { mkdir -p .cache; echo "NOT RUN: $(1)" | tee -a $(NOT_RUN); }

# The packages whose tests make network namespaces are those that use the test net.
netns = $$(go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | grep pod2role/e2e/testnet | cut -d ' ' -f 1)
other = $$(go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | grep -v pod2role/e2e/testnet | cut -d ' ' -f 1)

.PHONY: menu setup build test test-cluster go-test unit netns clients lint vuln docs docs-check tidy tidy-check fuzz mutants mutants-check demo bench chart image clean

menu: ## this menu
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## the real daemon against AWS and a cluster on loopback; ARGS=--once checks what it printed and ends
	@go run . demo $(ARGS)

# A short round of fuzzing is a count: at the end of a time, Go before 1.27 may report its own deadline as a failure
# (https://go.dev/issue/75804).
test: ## everything that this machine can test; what it cannot, it names, and with CI=true that is a failure
	@mkdir -p .cache && rm -f $(NOT_RUN) .cache/summary
	@$(MAKE) --no-print-directory setup build docs-check tidy-check mutants-check
	@$(MAKE) --no-print-directory go-test STRICT=$(if $(IN_CI),1,)
	@$(MAKE) --no-print-directory fuzz FUZZTIME=3000x FUZZED='./proxy ./mappings ./cni'
	@$(MAKE) --no-print-directory chart lint vuln STRICT=$(if $(IN_CI),1,)
	@cat .cache/summary
	@if [ -s $(NOT_RUN) ]; then cat $(NOT_RUN); fi

# The cluster's programs are built once, on two cores in about eight minutes; from then on all of it takes about three.
test-cluster: setup $(HELM) ## the image and the chart on a real cluster of one node (root on Debian; see e2e/cluster)
	@$(MAKE) --no-print-directory image ARCHS=$$(go env GOARCH) VERSION=cluster IMAGE=testbed.local/pod2role:cluster
	@IMAGE=$(abspath dist/pod2role-cluster.tar) HELM=$(abspath $(HELM)) e2e/cluster/run

setup: ## install what the tests need and the machine lacks (as root on Debian)
	@tools/setup

build: ## bin/pod2role for this machine
	@mkdir -p bin && go build -o bin/pod2role .

go-test: $(GOTEST) ## all Go tests
	@cd tools && go test ./gotest ./image
	@$(GOTEST) $(SKIPS) -summary .cache/summary -- $(TESTFLAGS) ./...

unit: $(GOTEST) ## the Go tests that need no network namespace
	@$(GOTEST) $(SKIPS) -- $(TESTFLAGS) $(other)

netns: $(GOTEST) ## the tests between network namespaces, with real kernel rules
	@$(GOTEST) $(SKIPS) -- $(TESTFLAGS) $(netns)

clients: setup $(GOTEST) ## the tests with the AWS CLI and the SDKs
	@$(GOTEST) $(SKIPS) -- $(TESTFLAGS) -run 'SDK|CLI|Client|Botocore' ./e2e/... ./sandbox/...

lint: ## golangci-lint, and the formatting
	@if $(MAKE) -s $(LINT); then \
		$(LINT) run --allow-parallel-runners ./... && cd tools && ../$(LINT) run --allow-parallel-runners --config ../.golangci.yml ./gotest ./image; \
	else $(call not_run,lint: golangci-lint could not be built (see above)); test -z "$(STRICT)"; fi

# The vulnerability database is a service somewhere else: that it cannot be reached says nothing about the code, so it
# is named and is no failure. GOVULNDB is another place to look for it, as a URL.
vuln: ## govulncheck, where the vulnerability database can be reached (GOVULNDB=URL is another place to look)
	@if ! $(MAKE) -s $(VULN); then $(call not_run,vuln: govulncheck could not be built (see above)); test -z "$(STRICT)"; exit; fi; \
	said=$$($(VULN) $(if $(GOVULNDB),-db '$(GOVULNDB)') ./... 2>&1); code=$$?; echo "$$said"; \
	case "$$said" in *'fetching vulnerabilities:'*) \
		$(call not_run,vuln: the vulnerability database cannot be reached from here: no known vulnerability was looked for); exit 0;; esac; \
	exit $$code

docs: ## write the pages that are made from the code
	@go run . docs --write

docs-check:
	@go run . docs | diff -u docs/configuration.md - || { echo 'docs/configuration.md is not what the code says: run "make docs"'; exit 1; }

tidy: ## go mod tidy and gofumpt everywhere
	@for module in . tools e2e/clients e2e/aemm e2e/cluster/bed; do (cd $$module && go mod tidy) || exit; done
	@$(MAKE) -s $(LINT) && $(LINT) fmt ./...

tidy-check:
	@for module in . tools e2e/clients e2e/aemm; do (cd $$module && go mod tidy -diff) || { echo "$$module/go.mod is not tidy: run \"make tidy\""; exit 1; }; done

fuzz: ## every fuzz test for FUZZTIME; FUZZED=./proxy for one package
	@go test -list '^Fuzz' $(FUZZED) | awk '/^Fuzz/ { name[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, name[i]; n = 0 }' | \
	while read -r package name; do \
		echo "$$package $$name" && go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -parallel $(CORES) "$$package" || exit; \
	done

# Breaking every guard takes a quarter of an hour, so "make test" only sees to it that each patch still fits the code.
mutants-check:
	@for patch in mutants/*.patch; do git apply --check $$patch || { echo "$$patch no longer fits the code that it breaks"; exit 1; }; done

mutants: ## break each guard on purpose and see that a test notices; ONLY=NAME for some
	@mkdir -p .cache && go run ./mutants $(SKIPS) -parallel $(CORES) -only '$(ONLY)' -summary .cache/mutants

bench: ## measure the daemon; ARGS=warm for one scenario, ARGS=-h for the others, ARGS=-write for docs/performance.md
	@go run ./bench $(ARGS)

chart: $(HELM) ## lint and render the chart, and hold it to what it promises
	@HELM=$(abspath $(HELM)) charts/test

image: ## dist/pod2role-VERSION.tar: an OCI archive for ARCHS, made without a container engine; IMAGE=REGISTRY/pod2role:TAG names it
	@mkdir -p dist
	@for arch in $(ARCHS); do GOOS=linux GOARCH=$$arch $(RELEASE) -o dist/pod2role-linux-$$arch . || exit; done
	@cd tools && go run ./image -name '$(IMAGE)' -revision '$(REVISION)' -ca '$(CA)' -o ../dist/pod2role-$(VERSION).tar \
		$(foreach arch,$(ARCHS),$(arch)=../dist/pod2role-linux-$(arch))
	@echo 'dist/pod2role-$(VERSION).tar: $(IMAGE) for $(ARCHS)'

clean: ## remove what was built, but not the tools
	@rm -rf bin dist

$(LINT) $(VULN):
	@mkdir -p $(TOOLS) && cd tools && echo 'building $(@F), once' && \
	CGO_ENABLED=0 go build -trimpath -o $(abspath $@) $$(go list tool | grep '/$(@F)$$')

$(HELM):
	@echo 'building helm, once' && CGO_ENABLED=0 GOBIN=$(abspath $(dir $@)) go install -trimpath helm.sh/helm/v3/cmd/helm@$(patsubst helm-%,%,$(notdir $(patsubst %/,%,$(dir $@))))

$(GOTEST): $(wildcard tools/gotest/*.go)
	@mkdir -p $(@D) && cd tools && go build -o $(abspath $@) ./gotest
