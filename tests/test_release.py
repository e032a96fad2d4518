# SPDX-License-Identifier: Apache-2.0
"""The wheel that is released: what it carries besides the package."""

import json
import os
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tools.deb import DEFAULTS, UNIT, filled
from tools.wheel_programs import _bill, _crates, _licences

LOADGEN = Path("loadgen").resolve()


def test_the_bill_names_the_crates_that_are_linked_in_and_each_has_its_licence() -> None:
    crates = _crates(LOADGEN, platform.machine())
    bill = _bill(crates)
    names = {one["name"] for one in bill["components"]}
    assert {"virtune-load", "virtune-guest", "blkio", "serde_json", "virtio-driver"} <= names
    assert not names & {"proptest", "tempfile", "syn", "windows-sys"}, (
        "only tests, macros or other systems need these"
    )
    texts = _licences(crates)
    for one in bill["components"]:
        assert one["licenses"][0]["expression"] not in {"NOASSERTION", ""}, one["name"]
        if not one["name"].startswith("virtune-"):
            assert f"{one['name']} {one['version']}" in texts, one["name"]


@pytest.mark.long(always="the bill is read above, and setup links the same programs; a build takes a minute")
def test_a_wheel_carries_the_generator_the_guest_and_the_demo(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path / "out"), "-t", "wheel"]
    subprocess.run(build, check=True, capture_output=True, env=os.environ | {"VIRTUNE_PROGRAMS": "required"})
    (wheel,) = (tmp_path / "out").glob("*.whl")
    assert "manylinux2014" in wheel.name
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "in")
    (load,) = (tmp_path / "in").glob("*.data/scripts/virtune-load")
    load.chmod(0o755)
    assert subprocess.run([load, "--version"], check=True, capture_output=True, text=True).stdout.startswith(
        "virtune-load-"
    )
    linked = subprocess.run(["ldd", load], capture_output=True, text=True)
    assert "statically linked" in linked.stdout + linked.stderr
    assert str(Path.home()).encode() + b"/" not in load.read_bytes(), "a path of this machine is in it"
    (guest,) = (tmp_path / "in").glob("*.data/data/share/virtune/virtune-guest")
    assert guest.read_bytes().startswith(b"\x7fELF")
    (info,) = (tmp_path / "in").glob("*.dist-info")
    assert json.loads((info / "sboms" / "crates.cdx.json").read_text())["bomFormat"] == "CycloneDX"
    assert "virtune-demo" in (info / "entry_points.txt").read_text()


def test_what_the_package_starts_takes_the_options_that_it_gives() -> None:
    serve = filled().commands["serve"]
    known = {word for parameter in serve.params for word in parameter.opts}
    asked = set(re.findall(r"--[a-z-]+", UNIT + DEFAULTS))
    assert asked <= known
    assert asked == {"--token-file", "--port"}


@pytest.mark.long(always="its parts are read above; a package takes minutes, most of them to compress")
def test_the_package_has_its_programs_pages_and_completion(tmp_path: Path) -> None:
    words = [sys.executable, "-m"]
    build = [*words, "hatchling", "build", "-d", str(tmp_path), "-t", "wheel"]
    subprocess.run(build, check=True, capture_output=True, env=os.environ | {"VIRTUNE_PROGRAMS": "required"})
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([*words, "tools.deb", str(wheel), str(tmp_path)], check=True, capture_output=True)
    (package,) = tmp_path.glob("*.deb")
    told = subprocess.run(["dpkg-deb", "--contents", str(package)], check=True, capture_output=True, text=True).stdout
    for name in (
        "usr/bin/virtune", "usr/bin/virtune-demo", "usr/bin/virtune-load",
        "usr/lib/virtune/share/virtune/virtune-guest",
        "usr/share/man/man1/virtune-audit.1.gz", "usr/share/man/man1/virtune-fleet-run.1.gz",
        "usr/share/bash-completion/completions/virtune", "usr/lib/systemd/system/virtune-serve.service",
    ):  # fmt: skip
        assert f" ./{name}" in told, name
    subprocess.run(["dpkg-deb", "-R", str(package), str(tmp_path / "tree")], check=True)
    (tmp_path / "tree/usr/lib/virtune/bin/python3").unlink()
    (tmp_path / "tree/usr/lib/virtune/bin/python3").symlink_to("/usr/bin/python3")
    ran = [str(tmp_path / "tree/usr/lib/virtune/bin/python3"), "-m", "virtune", "--version"]
    assert subprocess.run(ran, check=True, capture_output=True, text=True).stdout.startswith("virtune, version")
