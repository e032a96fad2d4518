# Every target works on a fresh Debian or Ubuntu machine; `tools/setup` installs what is missing.
VENV := .venv/bin
marked = $(shell grep -rl --include='test_*.py' 'mark\.$(1)\b' tests)  # what is not collected takes no time

unexport PYTHONDONTWRITEBYTECODE  # where bytecode is not kept, every worker compiles all that it imports

.PHONY: help ready demo test test-long check style types contracts together load fast lock docs release deb rpm image bundle site clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

demo:  ## Install what is needed, then compare threads, native, io_uring and a VM with this host's disk (ARGS='--scratch DIR')
	@tools/setup run
	@$(VENV)/virtune-demo $(ARGS)

ready:
	@tools/setup dev

test: ready  ## Everything: style, types, house rules, tests on real fio and QEMU
	$(MAKE) --no-print-directory -j 4 --output-sync style contracts types load  # the generator's tests wait for timers, so types are free
	$(VENV)/pytest -m 'first and not alone and not long' -n 2 --dist loadgroup $(call marked,first)  # they measure: beside others they miss by a few percent
	$(MAKE) --no-print-directory together
	$(VENV)/pytest -m 'alone and not long' $(call marked,alone)  # one at a time: of two, each is the other's disturbance

test-long: ready  ## What is long and rare: kills by the hundred, soaks, large simulations, fresh faults and mutated files; before a release
	$(VENV)/pytest -m long
	$(VENV)/python -m benchmarks.fresh --floor 0.85
	$(VENV)/python -m benchmarks.fuzz 2000

check: types contracts style  ## Style, types and import contracts only

together: ready  # seven at a time, since the real ones wait more than they work
	$(VENV)/pytest -m 'not alone and not first and not long' -n 7 --dist loadgroup --no-loadscope-reorder

types: ready  # niced, as the next: they take what the tests beside them leave
	nice -n 10 $(VENV)/mypy

contracts: ready
	nice -n 10 $(VENV)/lint-imports

style: ready
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .

load: ready  ## The load generator's own tests only
	tools/test-load

fast: ready  ## The tests that start no fio and no QEMU
	$(VENV)/pytest -m 'not real' -n auto

lock: ready  ## Renew the locked requirements
	$(VENV)/uv -q pip compile --universal --generate-hashes --no-header --no-annotate --python-version 3.11 --group dev pyproject.toml -o requirements/dev.txt
	$(VENV)/uv -q pip compile --universal --generate-hashes --no-header --no-annotate --python-version 3.11 --group build --group measure --group report --group serve --group postgres pyproject.toml -o requirements/run.txt

docs: ready  ## Write the generated reference pages again
	$(VENV)/python -m tools.reference

release: ready  ## Build the source archive and the wheel of HEAD twice, compare them, and write checksums and bills of materials (ARCH=aarch64: its wheel too)
	$(VENV)/python -m tools.release dist $(ARCH)

deb: release  ## Build a Debian package of it, for the Python of this distribution or another (PYTHON=3.13)
	$(VENV)/python -m tools.deb $(PYTHON)

rpm: release  ## Build an rpm package of it, for Python PYTHON (3.12) of Fedora, RHEL or openSUSE; needs rpmbuild
	$(VENV)/python -m tools.rpm $(PYTHON)

image: deb  ## Build an OCI image of the Debian package, without a daemon; needs mmdebstrap and umoci
	$(VENV)/python -m tools.image

bundle: deb  ## Build an archive that installs it, QEMU and the test guest on hosts of this distribution without a network
	$(VENV)/python -m tools.bundle

site: ready  ## Build the guide and the reference as the site of this version, into site/VERSION
	$(VENV)/python -m tools.site

clean:  ## Remove what was built here
	rm -rf .venv dist build site .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
