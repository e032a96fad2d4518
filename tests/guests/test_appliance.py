# SPDX-License-Identifier: Apache-2.0
"""The appliance: its archive as another program reads it, stand-ins that carry a real fio, its name and its size."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.leftovers import left_over

from virtune import shell
from virtune.bench.appliance.build import (
    Appliance,
    appliance_for,
    appliances,
    archive,
    file,
    link,
    remove,
    remove_halves,
    sign,
    unpacked_kernel,
)
from virtune.bench.appliance.sources import Sources, find_sources, libraries, needed, stand_ins
from virtune.model.errors import PreconditionError

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]


@pytest.fixture(scope="module")
def sources() -> Sources:
    return find_sources(shell.cache_directory() / "packages")


def test_another_program_reads_the_archive(sources: Sources, tmp_path: Path) -> None:
    written = archive([file("a/b/c", b"12345", program=True), link("a/l", "b/c")], directories=["empty"])
    subprocess.run([sources.busybox, "cpio", "-i"], input=written, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "a" / "l").read_bytes() == b"12345"
    assert (tmp_path / "a" / "b" / "c").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "empty").is_dir()
    assert written == archive([link("a/l", "b/c"), file("a/b/c", b"12345", program=True)], directories=["empty"])


def test_fio_runs_on_stand_ins_for_what_no_disk_needs(sources: Sources, tmp_path: Path) -> None:
    found = libraries(sources.fio)
    few = {
        name: path
        for name, path in found.items()
        if name.startswith(("libc.", "libm.", "libz.", "libaio.", "libnuma."))
    }
    written = stand_ins(sources.fio, few)
    if not written:
        pytest.skip("this fio needs no library that a guest does not: install a distribution's fio with rbd or gfapi")
    for name in needed(sources.fio):
        place = tmp_path / name
        place.write_bytes(written[name]) if name in written else shutil.copy(found[name], place)
    (tmp_path / "disk").write_bytes(bytes(65536))
    loader = next(name for name in found if name.startswith("/"))
    words = [loader, "--inhibit-cache", "--library-path", str(tmp_path), str(sources.fio), "--name=x", "--readonly"]
    words += [f"--filename={tmp_path}/disk", "--rw=randread", "--bs=4k", "--number_ios=7", "--ioengine=libaio"]
    words += ["--disk_util=0"]  # it looks at every disk, and says so of one that goes meanwhile
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "total=r=7," in done.stdout or "issued rwts: total=7," in done.stdout


def test_its_name_is_its_content(sources: Sources, tmp_path: Path) -> None:
    home = tmp_path / "appliances"
    first, made = appliance_for(sources, home)
    assert made
    assert appliance_for(sources, home) == (first, False)
    other = tmp_path / "fio"
    other.write_bytes(sources.fio.read_bytes() + b"\0")
    other.chmod(0o755)
    second, made = appliance_for(replace(sources, fio=other), home)
    assert made
    assert {one.key for one in appliances(home)} == {first.key, second.key}
    (first.initramfs).unlink()
    assert [one.key for one in appliances(home)] == [second.key], "a half is none"
    assert appliance_for(sources, home)[1], "and is made again"
    assert sorted(remove(home)) == sorted([first.key, second.key])
    left_over(home / "abc.999999999.partial")
    assert [path.name for path in remove_halves(home)] == ["abc.999999999.partial"]


def test_it_is_small_and_drives_what_a_disk_may_hang_on(appliance: Appliance) -> None:
    assert appliance.size_bytes <= 10 * 1024**2
    for module in ("virtio_blk", "virtio_scsi", "sd_mod", "nvme"):
        assert appliance.drives(module)


def test_what_is_no_kernel_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match="there is no kernel"):
        find_sources(tmp_path, kernel=tmp_path / "vmlinuz-none")
    (tmp_path / "vmlinuz-none").write_bytes(b"MZ")
    with pytest.raises(PreconditionError, match="the modules of the kernel"):
        find_sources(tmp_path, kernel=tmp_path / "vmlinuz-none")


@pytest.mark.parametrize("place", ["lib/modules", "usr/lib/modules"])
def test_the_modules_of_an_unpacked_package_are_found_where_its_distribution_has_them(
    place: str, tmp_path: Path
) -> None:
    """Debian 13 has them below /usr: no Linux guest was to be had there."""
    kernel = tmp_path / "boot" / "vmlinuz-6.12.1-cloud-amd64"
    modules = tmp_path / place / "6.12.1-cloud-amd64"
    for directory in (kernel.parent, modules):
        directory.mkdir(parents=True)
    kernel.touch()
    (modules / "modules.builtin").touch()
    assert find_sources(tmp_path, kernel=kernel).modules == modules


def test_its_kernel_is_unpacked_once_and_one_that_cannot_be_is_booted_as_it_is(appliance: Appliance) -> None:
    packed = appliance.kernel.with_name("vmlinuz").read_bytes()
    plain = unpacked_kernel(packed)
    assert plain is not None, "lz4 and zstd come with tools/setup"
    assert plain[:4] == b"\x7fELF"
    assert appliance.kernel.name == "vmlinux"
    assert appliance.kernel.stat().st_size == len(plain)
    payload = (packed[0x1F1] + 1) * 512 + int.from_bytes(packed[0x248:0x24C], "little")
    for damaged in (b"", packed[:0x250], packed[:payload], packed[: payload + 1000], packed[:payload] + bytes(2000)):
        assert unpacked_kernel(damaged) is None
    assert unpacked_kernel(packed[:0x202] + b"none" + packed[0x206:]) is None, "no bzImage"


def test_without_room_for_the_unpacked_kernel_the_packed_one_is_booted(sources: Sources, tmp_path: Path) -> None:
    made, _ = appliance_for(sources, tmp_path)
    plain = made.kernel
    plain.unlink()
    sign(plain.parent)
    plain.mkdir()  # as little can be written there as on a full disk
    again, built = appliance_for(sources, tmp_path)
    assert (again.kernel.name, built) == ("vmlinuz", False)
    assert not list(plain.parent.glob("vmlinux.*")), "nothing is left behind"
