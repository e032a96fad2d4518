# SPDX-License-Identifier: Apache-2.0
"""The wheel that is released: what it carries besides the package."""

import json
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
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
