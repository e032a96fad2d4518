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
from tools.tree import DEFAULTS, UNIT, filled
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
    elsewhere = {one["name"] for one in _bill(_crates(LOADGEN, "aarch64"))["components"]}
    assert "virtune-load" in elsewhere
    assert "virtune-guest" not in elsewhere, "it is a PC"
    texts = _licences(crates)
    for one in bill["components"]:
        assert one["licenses"][0]["expression"] not in {"NOASSERTION", ""}, one["name"]
        if not one["name"].startswith("virtune-"):
            assert f"{one['name']} {one['version']}" in texts, one["name"]


@pytest.mark.long(always="the bill is read above, and setup links the same programs; a build takes a minute")
def test_a_wheel_carries_the_generator_the_guest_and_the_demo(wheel: Path, tmp_path: Path) -> None:
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


TOOLCHAIN = (
    "rustc-web", "cargo-web", "libstd-rust-web-dev:arm64", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross",
    "qemu-user-static", "python3-venv",
)  # fmt: skip


@pytest.mark.timeout(1800)
@pytest.mark.long(always="the bill of aarch64 is read above; a root with its compiler and a build take minutes")
def test_a_wheel_for_aarch64_has_a_generator_that_loads_a_disk(tmp_path: Path) -> None:
    with fresh_root(tmp_path, "bookworm") as system:
        system.run("dpkg", "--add-architecture", "arm64")
        system.run("apt-get", "update", "-q")
        system.install(*TOOLCHAIN)
        subprocess.run(["git", "clone", "-q", ".", system.path / "root/virtune"], check=True)
        system.run("python3", "-m", "venv", "/root/venv")
        system.run("/root/venv/bin/pip", "install", "-q", "hatchling")
        asked = ("VIRTUNE_MACHINE=aarch64", "VIRTUNE_PROGRAMS=required")
        build = ("/root/venv/bin/python", "-m", "hatchling", "build", "-t", "wheel", "-d", "/root/dist")
        system.run("env", "-C", "/root/virtune", *asked, *build, seconds=1800)
        (wheel,) = (system.path / "root/dist").glob("*.whl")
        assert wheel.name.endswith("-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64.whl")
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(tmp_path / "in")
        (load,) = (tmp_path / "in").glob("*.data/scripts/virtune-load")
        assert list((tmp_path / "in").glob("*.data/*")) == [load.parent], "a guest is a PC"
        load.chmod(0o755)
        emulated = tmp_path / "bin" / "virtune-load"
        emulated.parent.mkdir()
        emulated.write_text(f'#!/bin/sh\nexec {system.path}/usr/bin/qemu-aarch64-static {load} "$@"\n')
        emulated.chmod(0o755)
        words = [sys.executable, "-m", "virtune", "compare", "measure", "--rig", "vhost-user", "--rounds", "1"]
        words += ["--seconds", "1s", "--span", "16M", "--scratch", str(tmp_path), "--store", str(tmp_path / "store")]
        path = f"{emulated.parent}:{os.environ['PATH']}"
        done = subprocess.run(words, env=os.environ | {"PATH": path}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "settings verified" in done.stdout


def test_what_the_package_starts_takes_the_options_that_it_gives() -> None:
    serve = filled().commands["serve"]
    known = {word for parameter in serve.params for word in parameter.opts}
    asked = set(re.findall(r"--[a-z-]+", UNIT + DEFAULTS))
    assert asked <= known
    assert asked == {"--token-file", "--port"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(place), "-t", "wheel"]
    subprocess.run(build, check=True, capture_output=True, env=os.environ | {"VIRTUNE_PROGRAMS": "required"})
    return next(place.glob("*.whl"))


@pytest.fixture(scope="module")
def package(wheel: Path) -> Path:
    made("deb", "", wheel, wheel.parent)
    return next(wheel.parent.glob("*.deb"))


def made(kind: str, *words: str | Path) -> None:
    """Call the program of `tools` that makes a package."""
    done = subprocess.run([sys.executable, "-m", f"tools.{kind}", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


PAGES = (
    "usr/bin/virtune", "usr/bin/virtune-demo", "usr/bin/virtune-load", "usr/lib/virtune/share/virtune/virtune-guest",
    "usr/share/man/man1/virtune-audit.1.gz", "usr/share/man/man1/virtune-fleet-run.1.gz",
    "usr/share/bash-completion/completions/virtune", "usr/lib/systemd/system/virtune-serve.service",
)  # fmt: skip

QUICK = ("--rounds", "6", "--seconds", "200ms", "--span", "16M", "--scratch", "/var/tmp/scratch")
ARMS = ("--arm", "a:disk.aio=threads", "--arm", "b:disk.aio=native", "--rig", "storage-daemon")


@pytest.mark.timeout(1800)
@pytest.mark.long(always="its parts are read above; a package takes minutes, most of them to compress")
@pytest.mark.parametrize(("suite", "python"), [("bookworm", "3.11"), ("trixie", "3.13"), ("noble", "3.12")])
def test_the_debian_package_has_its_pages_and_leaves_nothing_but_studies(
    suite: str, python: str, wheel: Path, tmp_path: Path
) -> None:
    made("deb", python, wheel, tmp_path)
    (package,) = tmp_path.glob("*.deb")
    told = subprocess.run(["dpkg-deb", "--contents", str(package)], check=True, capture_output=True, text=True).stdout
    for name in PAGES:
        assert f" ./{name}" in told, name
    with fresh_root(tmp_path, suite) as system:
        shutil.copy(package, system.path / "tmp/virtune.deb")
        shutil.copy(a_version_before(package, tmp_path), system.path / "tmp/before.deb")
        before = files_of(system)
        system.install("/tmp/before.deb")
        doctor = system.run("virtune", "host", "doctor")
        assert "ok       QEMU's block layer without a guest" in doctor
        assert "missing  libvirt's VMs: virsh; `apt-get install libvirt-clients`" in doctor
        kept_by_an_upgrade_and_a_removal(
            system,
            before,
            ("apt-get", "install", "-y", "-q", "/tmp/virtune.deb"),
            ("apt-get", "purge", "-y", "-q", "virtune"),
        )


def a_version_before(package: Path, place: Path) -> Path:
    """The same package as a version before it, which had a module more."""
    tree, made = place / "before", place / "before.deb"
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace("\nVersion: ", "\nVersion: 0~", 1))
    (modules,) = tree.glob("usr/lib/virtune/lib/python*/site-packages/virtune")
    (modules / "gone").mkdir()
    (modules / "gone/__init__.py").touch()
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, made], check=True)
    shutil.rmtree(tree)
    return made


@pytest.mark.timeout(1800)
@pytest.mark.long(always="the package of another kind is made from the same tree; a distribution takes minutes")
def test_the_rpm_package_has_its_pages_and_leaves_nothing_but_studies(wheel: Path, tmp_path: Path) -> None:
    made("rpm", "3.12", wheel, tmp_path)
    (package,) = tmp_path.glob("*.rpm")
    asked = ["rpm", "--query", "--package", str(package)]
    told = subprocess.run([*asked, "--list"], check=True, capture_output=True, text=True).stdout.splitlines()
    assert {f"/{name}" for name in PAGES} <= set(told)
    needed = subprocess.run([*asked, "--requires"], check=True, capture_output=True, text=True).stdout.splitlines()
    assert {"/usr/bin/python3.12", "/usr/bin/fio", "/usr/bin/qemu-img"} <= set(needed)
    # no distribution of that kind can be made from the packages at hand: rpm's own installation, on the same Python
    with fresh_root(tmp_path, "noble") as system:
        system.install("rpm", "python3", "fio", "qemu-utils", "qemu-system-common", "fuse3")
        shutil.copy(package, system.path / "tmp/virtune.rpm")
        before = files_of(system)
        system.run("rpm", "--install", "--nodeps", "/tmp/virtune.rpm")
        kept_by_an_upgrade_and_a_removal(
            system,
            before,
            ("rpm", "--upgrade", "--replacepkgs", "--nodeps", "/tmp/virtune.rpm"),
            ("rpm", "--erase", "virtune"),
        )


def kept_by_an_upgrade_and_a_removal(
    system: FreshRoot, before: set[str], upgrade: tuple[str, ...], removal: tuple[str, ...]
) -> None:
    """What is installed works; an upgrade and a removal keep the studies, and a removal leaves nothing else."""
    said = system.run("virtune", "compare", *ARMS, *QUICK, "--report", "/tmp/report.html")
    assert "12 of 12 trials count, settings verified" in said
    assert "<svg" in (system.path / "tmp/report.html").read_text()
    system.run(*upgrade)
    assert "12/12" in system.run("virtune", "show", "list")
    assert not [name for name in files_of(system) if "virtune/gone" in name]
    said = system.run("virtune-demo", "--budget", "60s", "--scratch", "/var/tmp/scratch", seconds=900)
    assert re.search("trials count.*, settings verified", said), said
    assert "<svg" in (system.path / "virtune-report.html").read_text()
    system.run("virtune", "host", "clean", "--images", "--scratch", "/var/tmp/scratch")
    system.run(*removal)
    left = {name for name in files_of(system) - before if "virtune" in name}
    assert left == {"root/.local/share/virtune", "root/.local/share/virtune/virtune.sqlite"}
    kept = ("--store", str(system.path / "root/.local/share/virtune/virtune.sqlite"))
    words = [sys.executable, "-m", "virtune", "show", "list", *kept]
    assert "12/12" in subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.mark.long(always="it has the package, which is tested above; a root and its archive take minutes")
def test_the_image_runs_the_package(package: Path, tmp_path: Path) -> None:
    made("image", package, tmp_path)
    (image,) = tmp_path.glob("*.oci.tar")
    (tmp_path / "layout").mkdir()
    subprocess.run(["tar", "-C", str(tmp_path / "layout"), "-xf", str(image)], check=True)
    index = tmp_path / "layout/index.json"
    (named,) = (kept := json.loads(index.read_text()))["manifests"]
    assert named["annotations"].pop("org.opencontainers.image.ref.name").startswith("virtune:0.")
    named["annotations"]["org.opencontainers.image.ref.name"] = "1"  # umoci takes no name with a colon
    index.write_text(json.dumps(kept))
    bundle = tmp_path / "bundle"
    subprocess.run(["umoci", "unpack", "--image", f"{tmp_path / 'layout'}:1", str(bundle)], check=True)
    process = json.loads((bundle / "config.json").read_text())["process"]
    assert process["args"] == ["virtune", "--help"]
    system = FreshRoot(bundle / "rootfs")
    assert "Usage: virtune" in system.run(*process["args"])
    assert "ok       test guests (--rig qemu)" in system.run("virtune", "host", "doctor")
    assert "12 of 12 trials count, settings verified" in system.run("virtune", "compare", *ARMS, *QUICK)


@pytest.mark.long(always="it has the package, which is tested above; a root and a guest without KVM take minutes")
def test_the_bundle_installs_the_package_and_the_test_guest_without_a_network(package: Path, tmp_path: Path) -> None:
    made("bundle", package, tmp_path)
    (bundle,) = tmp_path.glob("*-offline.tar")
    with fresh_root(tmp_path, platform.freedesktop_os_release()["VERSION_CODENAME"]) as system:
        subprocess.run(["tar", "-C", str(system.path / "root"), "-xf", str(bundle)], check=True)
        system.run(f"/root/{bundle.stem}/install", offline=True)
        assert "ok       test guests (--rig qemu)" in system.run("virtune", "host", "doctor", offline=True)
        once = ("--rounds", "1", "--seconds", "1s", "--span", "16M")
        said = system.run("virtune", "compare", "measure", "--rig", "qemu", *once, offline=True)
        assert "1 of 1 trial counts" in said


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
