# SPDX-License-Identifier: Apache-2.0
"""What a host gets: exactly this virtune, the same each time, and of others all that its verbs load there."""

import subprocess
import sys
import tarfile
from pathlib import Path, PurePath

import pytest
from tests.fleet.wheels import make_wheelhouse

from virtune import __version__
from virtune.cli import run
from virtune.fleet.artefact import is_wanted, own_files, platform_of
from virtune.model.errors import VirtuneError

HOST = "CPython-3.11-x86_64-glibc-2.36"


def test_what_is_packed_of_the_running_virtune_is_the_same_each_time_and_has_every_module() -> None:
    files = own_files()
    assert own_files() == files
    assert "virtune/cli/__init__.py" in files
    assert f"virtune-{__version__}.dist-info/METADATA" in files
    assert not [one for one in files if "__pycache__" in one]


def test_it_is_packed_once_and_nothing_unfinished_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (wheels := tmp_path / "wheels").mkdir()
    asked = ["fleet", "pack", "--wheelhouse", str(make_wheelhouse(wheels)), HOST]
    assert (run(asked), run(asked)) == (0, 0)
    once, again = capfd.readouterr().out.splitlines()
    assert once == again
    first = Path(once)
    with tarfile.open(first) as packed:
        names = packed.getnames()
    assert {"virtune/__main__.py", f"virtune-{__version__}.dist-info/METADATA", "click_there.pth"} <= set(names)
    assert not [one for one in names if one.startswith("bin/")], "scripts name this machine's Python"
    assert [one.suffix for one in first.parent.iterdir()] == [".gz"], "nothing unfinished is left"


@pytest.mark.parametrize(
    ("said", "because"),
    [
        (HOST, ""), ("CPython-3.12-aarch64-glibc-2.39.1", ""), ("PyPy-3.11-x86_64-glibc-2.36", "is not CPython"),
        ("CPython-3.11-x86_64-musl-1.2", "is not CPython on glibc"), ("CPython-3.11-x86_64--", "is not CPython on"),
        ("CPython-3.11-x86_64-glibc-", "is not CPython on glibc"),
        ("CPython-3.10-x86_64-glibc-2.35", "has Python 3.10, and 3.11 is needed"), ("", "is not the platform"),
        ("CPython-3.11-x86_64-glibc-two", "is not the platform"), ("--help", "'--help' is not the platform"),
        ("CPython-3.11-../../etc-glibc-2.36", "is not the platform of a host"),
    ],
)  # fmt: skip
def test_a_platform_is_understood_or_it_is_said_why_nothing_is_made_for_it(said: str, because: str) -> None:
    if not because:
        assert platform_of(said).text in ("cp311-x86_64-2.36", "cp312-aarch64-2.39")
        return
    with pytest.raises(VirtuneError, match=because):
        platform_of(said)


_AS_ON_A_HOST = """
import sys
from importlib.machinery import PathFinder
from pathlib import Path, PurePath
from virtune.fleet.artefact import is_wanted
class OnlyWhatIsPacked(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        found = super().find_spec(name, path, target)
        origin = found and found.origin
        if "-packages/" in (origin or "") and not is_wanted(PurePath(origin.partition("-packages/")[2])):
            raise ModuleNotFoundError(f"not packed: {origin}", name=name)
        return None
sys.meta_path.insert(0, OnlyWhatIsPacked)
from virtune.cli import run
for line in sys.argv[1:]:
    if code := run(line.split()):
        sys.exit(f"{code}: {line}")
"""


def test_what_a_host_does_loads_nothing_that_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    verbs = [
        "compare --vary disk.aio=threads,io_uring --rig simulated --rounds 6 -q", "tune --rig simulated -q",
        "sweep --rig simulated --loads 30%,60% --rounds 6 -q", "check --rig simulated -q", "show last", "probe",
    ]  # fmt: skip
    done = subprocess.run([sys.executable, "-c", _AS_ON_A_HOST, *verbs], capture_output=True, text=True, timeout=250)
    assert (done.returncode, "not packed" in done.stderr) == (0, False), done.stderr[-1500:]


def test_of_others_only_what_nobody_loads_is_left_out() -> None:
    left_out = ("scipy/stats/__init__.py", "numpy/_core/tests/x.py", "bin/f2py", "yaml/_yaml.h")
    wanted = ("scipy/__init__.py", "scipy/special/_ufuncs.so", "scipy.libs/libopenblas.so", "numpy/_core/x.py")
    assert not any(map(is_wanted, map(PurePath, left_out)))
    assert all(map(is_wanted, map(PurePath, wanted)))
