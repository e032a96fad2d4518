# SPDX-License-Identifier: Apache-2.0
"""Which appliance the rig boots: what was chosen is kept, is what is made, and goes back; modules packed by zstd."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.conftest import User

from virtune import shell
from virtune.bench.appliance.build import (
    Appliance,
    Chosen,
    appliance_for,
    choose,
    chosen,
    chosen_appliance,
    general_appliance,
)
from virtune.bench.appliance.sources import find_sources
from virtune.bench.qemu.machine import PROGRAM
from virtune.model.errors import PreconditionError

EVERYTHING = "virtio_pci", "virtio_console"


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where what was chosen is stored."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "virtune"


def test_what_was_chosen_is_kept_until_something_else_is(tmp_path: Path, data: Path) -> None:
    assert chosen() == Chosen()
    own = Chosen(kernel=tmp_path / "vmlinuz", modules=tmp_path / "modules", agent=True, key="abc")
    choose(own)
    assert chosen() == own
    choose(Chosen(key="def"))
    assert chosen() == Chosen(key="def")
    assert [path.name for path in data.iterdir()] == ["guest.json"]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff\xfe", b"7", b"[" * 100_000, b'{"kernel": 7, "modules": "../x", "agent": "no"}']
)
def test_what_cannot_be_read_chose_nothing(data: Path, content: bytes) -> None:
    data.mkdir(parents=True)
    (data / "guest.json").write_bytes(content)
    assert chosen() == Chosen()


def test_no_other_kernel_is_booted_in_the_stead_of_one_that_was_chosen(tmp_path: Path) -> None:
    choose(Chosen(kernel=tmp_path / "vmlinuz-mine"))
    with pytest.raises(PreconditionError, match="vmlinuz-mine that you chose is gone") as refused:
        chosen_appliance(tmp_path)
    assert "`virtune host guest build` without --kernel" in str(refused.value.hint)
    with pytest.raises(PreconditionError, match="vmlinuz-mine that you chose has no ahci"):
        general_appliance(tmp_path, module="ahci")


def of_modules(place: Path, name: str, content: bytes, *, built_in: tuple[str, ...]) -> Path:
    """A directory of modules with one in it."""
    place.mkdir(parents=True)
    (place / name).write_bytes(content)
    (place / "modules.builtin").write_text("".join(f"kernel/{module}.ko\n" for module in built_in))
    return place


@pytest.fixture
def at_hand(tmp_path: Path) -> Path:
    """A cache with what was downloaded before, and nothing else."""
    cache = tmp_path / "virtune"
    cache.mkdir()
    (cache / "packages").symlink_to(shell.cache_directory() / "packages")
    return cache


@pytest.mark.real
@pytest.mark.xdist_group("guests")
def test_the_rig_boots_what_was_chosen_and_goes_back(at_hand: Path, tmp_path: Path, appliance: Appliance) -> None:
    kernel = tmp_path / "vmlinuz-mine"
    kernel.write_bytes(b"MZ")
    modules = of_modules(tmp_path / "9.9-mine", "nvme.ko", b"\0depends=\0", built_in=EVERYTHING)
    choose(Chosen(kernel=kernel, modules=modules))
    found = chosen_appliance(at_hand)
    assert (found.release, found.kernel.read_bytes(), found.drives("nvme")) == ("9.9-mine", b"MZ", True)
    assert chosen().key == found.key
    kernel.write_bytes(b"MZ, and built anew")
    assert chosen().key != chosen_appliance(at_hand).key == chosen().key
    choose(Chosen())
    assert chosen_appliance(at_hand).key == appliance.key


@pytest.mark.real
@pytest.mark.xdist_group("guests")
def test_modules_that_are_packed_by_zstd_are_unpacked(tmp_path: Path) -> None:
    packed = subprocess.run(["zstd", "-c"], input=b"\0depends=\0of nvme", capture_output=True, check=True).stdout
    modules = of_modules(tmp_path / "9.9", "nvme.ko.zst", packed, built_in=EVERYTHING)
    kernel = tmp_path / "vmlinuz-9.9"
    kernel.write_bytes(b"MZ")
    sources = find_sources(shell.cache_directory() / "packages", kernel=kernel, modules=modules)
    made, _ = appliance_for(sources, tmp_path / "appliances")
    assert b"\0depends=\0of nvme" in made.initramfs.read_bytes()
    (modules / "nvme.ko.zst").write_bytes(packed[:-3])
    with pytest.raises(PreconditionError, match=r"nvme\.ko\.zst cannot be unpacked"):
        appliance_for(sources, tmp_path / "appliances")


@pytest.fixture
def without_kvm(tmp_path: Path) -> str:
    """A PATH with a QEMU that refuses KVM at once: a new kernel is tried on it, which may take half a minute."""
    refusing = tmp_path / "bin" / PROGRAM
    refusing.parent.mkdir()
    refuse = 'for word; do [ "$word" != kvm ] || { echo "no KVM here" >&2; exit 1; }; done'
    refusing.write_text(f'#!/bin/sh\n{refuse}\nexec {shutil.which(PROGRAM)} "$@"\n')
    refusing.chmod(0o755)
    return f"{refusing.parent}:{os.environ['PATH']}"


@pytest.mark.real
@pytest.mark.once
@pytest.mark.long(always="what the rig boots is decided in each run, above, and booted in test_study.py")
@pytest.mark.xdist_group("guests")
def test_a_comparison_boots_the_kernel_that_was_chosen(
    at_hand: Path, tmp_path: Path, user: User, without_kvm: str
) -> None:
    user.env["XDG_CACHE_HOME"] = str(at_hand.parent)
    sources = find_sources(at_hand / "packages")
    kernel = tmp_path / "vmlinuz-mine"
    kernel.write_bytes(sources.kernel.read_bytes() + bytes(16))
    build = ("appliance", "build")
    said = user.run(*build, "--kernel", str(kernel), "--modules", str(sources.modules), path=without_kvm).stdout
    key = said.partition("made: ")[2].split()[0]
    assert "`--rig qemu` boots it from now on" in said
    words = (
        "measure",
        "--rig",
        "qemu",
        "--set",
        "guest.system=linux",
        "--rounds",
        "1",
        "--seconds",
        "0.5",
        "--ramp",
        "0",
        "-q",
    )
    user.run(*words, "--workload", "randread-4k", timeout=170, path=without_kvm)
    accelerator = user.run("show", "last", "--trial", "1", "--capture", "accelerator.txt").stdout
    assert accelerator.startswith("tcg: ")
    assert not Path("/dev/kvm").exists() or "no KVM here" in accelerator
    assert f"/appliances/{key}/vmlinu" in user.run("show", "last", "--trial", "1", "--capture", "rig.txt").stdout
    seen = json.loads(user.run("show", "last", "--trial", "1", "--capture", "guest.json").stdout)
    assert seen["kernel"] == sources.release, "and the trial says which that is"
    listed = user.run("host", "guest", "list").stdout
    assert [line.split()[0] for line in listed.splitlines() if "what `--rig qemu` boots" in line] == [key]
    back = user.run(*build, path=without_kvm).stdout.partition("made: ")[2].split()[0]
    listed = user.run("host", "guest", "list").stdout
    assert [line.split()[0] for line in listed.splitlines() if "what `--rig qemu` boots" in line] == [back] != [key]
