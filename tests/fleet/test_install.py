# SPDX-License-Identifier: Apache-2.0
"""virtune is installed on a host that has no network, replaced only when told, put back and removed."""

import importlib.metadata
import importlib.util
import io
import json
import re
import shutil
import subprocess
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.machines import Machine, Machines, machines
from tests.published import complaints

from virtune import __version__
from virtune.cli import run
from virtune.fleet.wheelhouse import needed, own_wheel

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("fleet")]

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """A host whose only virtune is what is installed there."""
    with machines(tmp_path_factory.mktemp("install"), "a", "b") as found:
        (found.by_name["a"].place / "bin" / "virtune").unlink()
        yield found


def wheel(name: str, version: str, files: dict[str, str]) -> tuple[str, bytes]:
    """A small wheel."""
    info = f"{name}-{version}.dist-info"
    every = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*every, f"{info}/RECORD"))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in (every | {f"{info}/RECORD": record}).items():
            archive.writestr(path, text)
    return f"{name}-{version}-py3-none-any.whl", packed.getvalue()


def pip_wheel() -> tuple[str, bytes]:
    """The pip of this Python, packed again."""
    about = importlib.metadata.distribution("pip")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for one in about.files or ():
            path = Path(str(about.locate_file(one)))
            if ".." not in one.parts and path.suffix != ".pyc" and path.is_file():
                archive.write(path, str(one))
    return f"pip-{about.version}-py3-none-any.whl", packed.getvalue()


@pytest.fixture(scope="module")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real pip; for each package that virtune needs a wheel that says only where the tests have it."""
    place = tmp_path_factory.mktemp("wheels")
    name, content = pip_wheel()
    (place / name).write_bytes(content)
    for requirement in needed():
        one = re.split(r"[^A-Za-z0-9._-]", requirement)[0]
        files = {f"{one}_there.pth": sysconfig.get_path("purelib") + "\n"} if one == "click" else {}
        name, content = wheel(re.sub(r"[-.]+", "_", one).lower(), importlib.metadata.version(one), files)
        (place / name).write_bytes(content)
    return place


def document(words: list[str], capfd: Capture, status: int = 0) -> dict[str, Any]:
    capfd.readouterr()
    assert run([*words, "--json"]) == status
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert complaints("fleet-install", found) == []
    return found


def made(machine: Machine) -> list[str]:
    """What is there of an install."""
    base = machine.place / "data" / "virtune-fleet"
    return sorted(one.name for one in base.iterdir()) if base.exists() else []


def older(machine: Machine) -> Path:
    """Make what an install of version 0.0.9 left; returns the command."""
    base = machine.place / "data" / "virtune-fleet"
    program = base / "0.0.9" / "bin" / "virtune"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho virtune, version 0.0.9\n")
    program.chmod(0o755)
    (base / "made-by-virtune-fleet-install").touch()
    (base / "current").symlink_to("0.0.9")
    command = machine.place / "home" / ".local" / "bin" / "virtune"
    command.parent.mkdir(parents=True)
    command.symlink_to(base / "current" / "bin" / "virtune")
    return command


def test_it_is_installed_used_put_back_and_removed(fleet: Machines, wheelhouse: Path, capfd: Capture) -> None:
    machine = fleet.by_name["a"]
    command = older(machine)
    hosts = ["--ssh-config", str(fleet.config), "--host", "a"]
    asked = ["fleet", "install", *hosts, "--wheelhouse", str(wheelhouse)]
    (lost,) = document(asked, capfd, status=1)["failed"]
    assert lost["because"] == "has virtune 0.0.9 already"
    (one,) = document([*asked, "--upgrade"], capfd)["hosts"]
    assert (one["state"], one["before"], one["version"]) == ("installed", "0.0.9", __version__)
    assert made(machine) == ["0.0.9", __version__, "current", "made-by-virtune-fleet-install", "previous"]
    assert str(command.resolve()).startswith(str(machine.place / "data" / "virtune-fleet" / __version__))
    assert run(["fleet", "probe", *hosts]) == 0  # by what was installed: the host has no other
    assert "1 host answered" in capfd.readouterr().out
    assert document(asked, capfd)["hosts"][0]["state"] == "kept"
    assert document([*asked, "--back"], capfd)["hosts"][0]["version"] == "0.0.9"
    assert made(machine) == ["0.0.9", "current", "made-by-virtune-fleet-install"]
    assert document([*asked, "--back"], capfd, status=1)["failed"][0]["because"] == "no earlier version is kept here"
    program = machine.place / "data" / "virtune-fleet" / "0.0.9" / "bin" / "sleep"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "600"]) as study:  # something of it runs, as a study does
        try:
            (lost,) = document([*asked, "--remove"], capfd, status=1)["failed"]
        finally:
            study.kill()
    assert lost["because"] == "its virtune is running"
    assert document([*asked, "--remove"], capfd)["hosts"][0]["version"] is None
    assert made(machine) == []
    assert not command.is_symlink()


def test_what_somebody_else_made_is_left_and_what_fails_leaves_nothing(
    fleet: Machines, wheelhouse: Path, tmp_path: Path, capfd: Capture
) -> None:
    machine = fleet.by_name["a"]
    hosts = ["--ssh-config", str(fleet.config), "--host", "a"]
    asked = ["fleet", "install", *hosts, "--wheelhouse"]
    own = machine.place / "home" / ".local" / "bin" / "virtune"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("mine")
    (lost,) = document([*asked, str(wheelhouse)], capfd, status=1)["failed"]
    assert "was not made by `virtune fleet install`" in lost["because"]
    assert own.read_text() == "mine"
    own.unlink()
    poor = tmp_path / "poor"
    poor.mkdir()
    (lost,) = document([*asked, str(poor)], capfd, status=1)["failed"]
    assert "has no wheel of pip" in lost["because"]
    (pip,) = wheelhouse.glob("pip-*")
    (poor / pip.name).symlink_to(pip)
    (lost,) = document([*asked, str(poor)], capfd, status=1)["failed"]
    assert "No matching distribution found for" in lost["because"]
    assert made(machine) == ["made-by-virtune-fleet-install"]
    assert not own.exists()


def test_the_wheel_of_the_running_virtune_is_the_same_each_time_and_has_every_module() -> None:
    name, content = own_wheel()
    assert own_wheel() == (name, content)
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        names = packed.namelist()
        assert packed.testzip() is None
    assert {"virtune/cli/__init__.py", "virtune/py.typed" if "virtune/py.typed" in names else names[0]} <= set(names)
    assert f"virtune-{__version__}.dist-info/entry_points.txt" in names
    assert not [one for one in names if "__pycache__" in one]
