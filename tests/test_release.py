# SPDX-License-Identifier: Apache-2.0
"""The wheel that is released: what it carries besides the package."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tools.deb import DEFAULTS, UNIT, filled
from tools.wheel_programs import _bill, _crates, _licences

from tests.fresh_root import FreshRoot, fresh_root

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
    with fresh_root(tmp_path, platform.freedesktop_os_release()["VERSION_CODENAME"]) as system:
        installed_and_removed(system, package)


def installed_and_removed(system: FreshRoot, package: Path) -> None:
    """What is installed works; an upgrade and a removal keep the studies, and a removal leaves nothing else."""
    shutil.copy(package, system.path / "tmp/virtune.deb")
    before = files_of(system)
    system.install("/tmp/virtune.deb")
    doctor = system.run("virtune", "host", "doctor")
    assert "ok       QEMU's block layer without a guest" in doctor
    assert "missing  libvirt's VMs: virsh; `apt-get install libvirt-clients`" in doctor
    quick = ("--rounds", "6", "--seconds", "200ms", "--span", "16M", "--scratch", "/var/tmp/scratch")
    arms = ("--arm", "a:disk.aio=threads", "--arm", "b:disk.aio=native", "--rig", "storage-daemon")
    said = system.run("virtune", "compare", *arms, *quick, "--report", "/tmp/report.html")
    assert "12 of 12 trials count, settings verified" in said
    assert "<svg" in (system.path / "tmp/report.html").read_text()
    system.run("dpkg", "--install", "/tmp/virtune.deb")
    assert "12/12" in system.run("virtune", "show", "list")
    system.run("virtune", "host", "clean", "--images", "--scratch", "/var/tmp/scratch")
    system.run("apt-get", "purge", "-y", "-q", "virtune")
    left = {name for name in files_of(system) - before if "virtune" in name}
    assert left == {"root/.local/share/virtune", "root/.local/share/virtune/virtune.sqlite"}


def files_of(system: FreshRoot) -> set[str]:
    return {
        str(one.relative_to(system.path))
        for top in ("etc", "root", "usr", "var")
        for one in (system.path / top).rglob("*")
    }


@pytest.mark.long(always="a whole distribution and its demo take minutes; CI begins on a fresh machine itself")
@pytest.mark.parametrize("suite", ["trixie", "noble"])
def test_the_demo_of_a_clone_works_on_other_distributions(suite: str, tmp_path: Path) -> None:
    with fresh_root(tmp_path, suite) as system:
        system.install("make", "git")
        subprocess.run(["git", "clone", "-q", ".", system.path / "root/virtune"], check=True)
        said = system.run("make", "-C", "/root/virtune", "demo", seconds=900)
        assert "trials count, settings verified" in said
        assert "<svg" in (system.path / "root/virtune/virtune-report.html").read_text()
