# SPDX-License-Identifier: Apache-2.0
"""What each call of virtune costs besides its work: counted, since times depend on the machine."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from virtune.shell import EXTRAS, missing_module

_EXAMPLES = "docs/guide/examples"

_COUNTED = """
import atexit, gc, sys
def collections():
    return sum(one["collections"] for one in gc.get_stats())
before = collections()
atexit.register(lambda: print(collections() - before, gc.get_freeze_count()))
from virtune.__main__ import main
sys.argv = ["virtune", "knobs", "--json"]
sys.stdout = open("/dev/null", "w")
atexit.register(setattr, sys, "stdout", sys.__stdout__)
main()
"""


def test_python_hardly_looks_for_cycles_where_there_are_none() -> None:
    done = subprocess.run([sys.executable, "-c", _COUNTED], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    collections, left_alone = map(int, done.stdout.split())
    assert collections < 20, "it looks for cycles as it starts"
    assert left_alone > 10_000, "it looks for cycles in all that there is as it ends"


_LOADED = """
import atexit, sys
from virtune.__main__ import main
heavy = ("asyncio", "numpy", "pydantic", "qemu", "scipy", "sqlalchemy", "textual")
atexit.register(lambda: print("loaded:", *(name for name in heavy if name in sys.modules)))
main()
"""


def test_an_audit_of_files_loads_nothing_that_only_a_monitor_or_a_store_needs() -> None:
    words = ["audit", f"{_EXAMPLES}/web1.xml", "--fail-on", "never"]
    done = subprocess.run([sys.executable, "-c", _LOADED, *words], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "loaded:", done.stderr


_SMALL = """
import sys
from virtune.shell import EXTRAS
class Lacks:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Lacks())
from virtune.cli import main
for words in sys.argv[1:]:
    sys.argv = ["virtune", *words.split()]
    try:
        code = main()
    except SystemExit as end:
        code = end.code
    print("=>", words, "=>", code or 0)
"""


def _small(place: Path, *commands: str) -> tuple[dict[str, int], str]:
    """Run commands in a Python that has nothing of the extras; the exit code of each, and what stderr has."""
    env = dict(os.environ) | {"TMPDIR": str(place)}  # `clean` tells what it finds of other tests' runs
    words = [sys.executable, "-c", _SMALL, *commands]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    ended = [line.split(" => ") for line in done.stdout.splitlines() if line.startswith("=> ")]
    return {words.removeprefix("=> "): int(code) for words, code in ended}, done.stderr


def test_what_reads_and_watches_needs_no_extra(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"studies that only its libraries can read")
    commands = {
        f"audit {_EXAMPLES}/web1.xml": 4, f"audit {_EXAMPLES}/web1.xml --json --here": 4,
        f"audit {_EXAMPLES}/web1.xml --here --store {tmp_path}/kept": 4,
        f"advise {_EXAMPLES}/web1.xml": 0, f"explain {_EXAMPLES}/before/run-1.json": 0,
        f"explain {_EXAMPLES}/before/run-1.json --json": 0, "probe --json": 0, "knobs --json": 0,
        f"top --once --qmp {tmp_path}/none": 3, f"diagnose --qmp {tmp_path}/none": 3, "fleet --help": 0,
        f"clean --scratch {tmp_path}": 0,
    }  # fmt: skip
    ended, said = _small(tmp_path, *commands)
    assert ended == commands, said
    assert "is not installed, and this needs it" not in said


def test_what_needs_an_extra_says_how_to_get_it(tmp_path: Path) -> None:
    commands = ("list", "compare a b", "measure", "report", "serve", "export", "check", "tune --vary disk.aio")
    ended, said = _small(tmp_path, *commands)
    assert ended == dict.fromkeys(commands, 3)
    assert said.count("is not installed, and this needs it") == said.count("hint: `pip install") == len(commands)


def test_what_is_there_and_cannot_be_loaded_is_told_with_its_reason() -> None:
    found = missing_module(ImportError("no pq wrapper available", name="psycopg"))
    assert found is not None
    assert found.message == "the Python package psycopg cannot be loaded (no pq wrapper available), and this needs it"
    assert "'psycopg[binary]" in (found.hint or "")
    assert missing_module(ImportError("no memory", name="json")) is None


def test_the_table_of_extras_is_the_projects() -> None:
    brings = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
    packages = packages_distributions()
    named = {(EXTRAS[module], one) for module in EXTRAS for one in packages[module] if module != "markupsafe"}
    asked = {(name, re.split(r"[^\w.-]", one)[0]) for name, needs in brings.items() for one in needs}
    assert {(name, one.lower().replace("_", "-")) for name, one in named} == {
        (name, one.lower()) for name, one in asked if one != "virtune"
    }
