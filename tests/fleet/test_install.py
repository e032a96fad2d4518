# SPDX-License-Identifier: Apache-2.0
"""An install leaves alone what somebody else made, and leaves nothing where it fails; the chain has the rest."""

import contextlib
import io
import json
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.machines import Machine, Machines, machines
from tests.fleet.wheels import make_wheelhouse
from tests.published import complaints

from virtune import __version__, on_host
from virtune.cli import run
from virtune.fleet.wheelhouse import own_wheel

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("fleet")]

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """A host whose only virtune is what is installed there."""
    with machines(tmp_path_factory.mktemp("install"), "a") as found:
        (found.by_name["a"].place / "bin" / "virtune").unlink()
        yield found


@pytest.fixture(scope="module")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels that are enough to install virtune here."""
    return make_wheelhouse(tmp_path_factory.mktemp("wheels"))


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


def own_notes(base: Path) -> Path:
    place = base / "0.1"
    (place / "bin").mkdir(parents=True)
    return place


def copied(base: Path) -> Path:
    on_host.make(base / "0.2")
    shutil.copytree(base / "0.2", base / "0.3")
    shutil.rmtree(base / "0.2")
    return (base / "0.3").rename(base / "0.2")


def renamed(base: Path) -> Path:
    on_host.make(base / "0.2")
    return (base / "0.2").rename(base / "kept")


def with_a_mark_of_another_kind(base: Path) -> Path:
    place = own_notes(base)
    (place / on_host.MARK).write_text(json.dumps({"names": [place.name]}))
    return place


def behind_a_link(base: Path) -> Path:
    place = own_notes(base).rename(base.parent / "elsewhere")
    (base / "0.4").symlink_to(place)
    return place


def of_the_wheels(base: Path) -> Path:
    return own_notes(base).rename(base / "incoming")


OTHERS = (own_notes, copied, renamed, with_a_mark_of_another_kind, behind_a_link, of_the_wheels)


@pytest.mark.parametrize("left", OTHERS, ids=lambda one: one.__name__)
def test_a_directory_that_no_install_made_stays(
    left: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    on_host.begin()
    base = on_host.data()
    on_host.drop(base / "incoming")
    place = left(base)
    (place / "mine").write_text("precious")
    on_host.make(base / "1.0")
    for one in sorted(base.iterdir()):
        if not one.name.startswith("made"):
            on_host.drop(one)
            with contextlib.suppress(on_host.NotDone):
                on_host.make(one)
    on_host.remove()
    assert (place / "mine").read_text() == "precious"
    assert not (base / "1.0").exists()
    assert (base / on_host.MARK).exists()


@pytest.mark.real
@pytest.mark.parametrize("home", ["plain", "with blank", "DOMAIN\\user", "a\tb\nc", "ünï"])
def test_what_is_mounted_in_a_version_stays(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / home))
    on_host.begin()
    (precious := tmp_path / "precious").mkdir()
    (precious / "mine").write_text("all I have")
    on_host.make(place := on_host.data() / "1.0")
    (point := place / "deep").mkdir()
    subprocess.run(["mount", "--bind", precious, point], check=True)
    on_host.drop(place)
    assert (point / "mine").read_text() == "all I have"
    subprocess.run(["umount", "-l", point], check=True)
    on_host.drop(place)
    assert not place.exists()


@pytest.mark.parametrize("name", ["current", "previous", ".current"])
def test_a_file_in_place_of_a_link_stays(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    on_host.begin()
    (on_host.data() / name).write_text("mine")
    with pytest.raises(on_host.NotDone):
        on_host.switch(name.lstrip("."), "1.0")
    on_host.remove()
    assert (on_host.data() / name).read_text() == "mine"


def test_nothing_but_the_whole_goes_with_what_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for cut in ("", None):  # killed before it wrote the mark, and in the middle
        on_host.begin()
        (on_host.data() / "1.0").mkdir()
        if cut is not None:
            (on_host.data() / "1.0" / on_host.MARK).write_text(cut)
        on_host.make(on_host.data() / "1.0")
        on_host.remove()
        assert not on_host.data().exists()
