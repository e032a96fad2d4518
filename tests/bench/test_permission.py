# SPDX-License-Identifier: Apache-2.0
"""virtune writes to nothing it did not make unless told so by name, and not to what is in use even then."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from virtune.bench.permission import admit
from virtune.model.errors import RefusedTargetError

pytestmark = pytest.mark.real

MIB = 1024**2


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "user.raw"
    path.write_bytes(b"x" * 4 * MIB)
    return path


@pytest.fixture
def loop_device(tmp_path: Path) -> Iterator[Path]:
    """A real block device, over a file."""
    backing = tmp_path / "backing.raw"
    backing.write_bytes(b"\1" * 32 * MIB)
    found = subprocess.run(["losetup", "-f", "--show", backing], capture_output=True, text=True, check=True)
    device = Path(found.stdout.strip())
    yield device
    subprocess.run(["losetup", "-d", device], check=True)


def look(target: Path, *, writes: bool = False, name: Path | None = None, in_use: bool = False) -> int:
    return admit(
        target,
        span_bytes=1 << 40,
        writes=writes,
        allow_write_to=None if name is None else str(name),
        allow_in_use=in_use,
    )


def test_reading_a_written_file_needs_no_leave(image: Path) -> None:
    assert look(image) == 4 * MIB


def test_writing_needs_the_target_s_own_name(image: Path, tmp_path: Path) -> None:
    with pytest.raises(
        RefusedTargetError, match=r"the workload writes to .*, which virtune did not create"
    ) as caught:
        look(image, writes=True)
    assert caught.value.hint is not None
    assert f"--allow-write-to {image}" in caught.value.hint
    with pytest.raises(RefusedTargetError):
        look(image, writes=True, name=tmp_path)
    assert look(image, writes=True, name=image) == 4 * MIB


def test_a_link_to_the_target_is_the_target(image: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(image)
    assert look(link, writes=True, name=image) == 4 * MIB


def test_a_file_that_another_process_holds_open_is_in_use(image: Path) -> None:
    with image.open("rb") as file, subprocess.Popen(["sleep", "60"], stdin=file) as holder:
        try:
            with pytest.raises(RefusedTargetError, match=rf"open in process {holder.pid} \(sleep\)"):
                look(image, writes=True, name=image)
            assert look(image, writes=True, name=image, in_use=True)
            assert look(image)
        finally:
            holder.kill()


@pytest.mark.parametrize("how", ["truncate", "fallocate"])
def test_blocks_that_were_never_written_are_refused(how: str, tmp_path: Path) -> None:
    path = tmp_path / "empty.raw"
    subprocess.run([how, *(["-s"] if how == "truncate" else ["-l"]), str(2 * MIB), path], check=True)
    with pytest.raises(
        RefusedTargetError, match=r"2 MiB of .* were never written: reading them does not measure the disk"
    ):
        look(path)


def test_what_is_no_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedTargetError, match="neither a file nor a block device"):
        look(tmp_path)
    with pytest.raises(RefusedTargetError, match="neither a file nor a block device"):
        look(Path("/dev/null"))
    with pytest.raises(RefusedTargetError, match=r"cannot use .*: No such file"):
        look(tmp_path / "none")
    (tmp_path / "tiny").write_bytes(b"x")
    with pytest.raises(RefusedTargetError, match="at least 1 MiB"):
        look(tmp_path / "tiny")


def test_an_unused_block_device_may_be_written_by_name(loop_device: Path) -> None:
    assert look(loop_device, writes=True, name=loop_device) == 32 * MIB


def test_a_signed_block_device_needs_a_second_word(loop_device: Path) -> None:
    subprocess.run(["mkfs.ext4", "-q", "-F", loop_device], check=True)
    with pytest.raises(RefusedTargetError, match=r"in use: .*ext4") as caught:
        look(loop_device, writes=True, name=loop_device)
    assert caught.value.hint is not None
    assert "--allow-in-use" in caught.value.hint
    assert look(loop_device, writes=True, name=loop_device, in_use=True)


def test_a_mounted_block_device_is_refused(loop_device: Path, tmp_path: Path) -> None:
    subprocess.run(["mkfs.ext4", "-q", "-F", loop_device], check=True)
    place = tmp_path / "mounted"
    place.mkdir()
    subprocess.run(["mount", loop_device, place], check=True)
    try:
        with pytest.raises(RefusedTargetError, match="mounted"):
            look(loop_device, writes=True, name=loop_device)
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_file_under_a_loop_device_is_in_use_mounted_or_not(loop_device: Path, tmp_path: Path) -> None:
    backing = tmp_path / "backing.raw"
    with pytest.raises(RefusedTargetError, match=rf"the loop device {loop_device.name} stands on it"):
        look(backing, writes=True, name=backing)


def test_a_file_that_holds_a_filesystem_needs_a_second_word(tmp_path: Path) -> None:
    image = tmp_path / "fs.raw"
    image.write_bytes(b"\1" * 16 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "nodiscard", image], check=True)
    with pytest.raises(RefusedTargetError, match="holds ext4"):
        look(image, writes=True, name=image)


def test_a_file_that_holds_a_virtual_disk_needs_a_second_word(image: Path, tmp_path: Path) -> None:
    # a master boot record with one Linux partition, of 1 MiB behind the first
    entry = bytes([0, 0, 0, 0, 0x83, 0, 0, 0]) + (2048).to_bytes(4, "little") * 2
    image.write_bytes(bytes(446) + entry + bytes(48) + b"\x55\xaa" + bytes(4 * MIB - 512))
    with pytest.raises(RefusedTargetError, match="holds a dos partition table"):
        look(image, writes=True, name=image)
    disk = tmp_path / "disk.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-o", "preallocation=full", disk, "4M"], check=True)
    with pytest.raises(RefusedTargetError, match="is a qcow2 image"):
        look(disk, writes=True, name=disk)


def test_a_file_that_cannot_be_searched_counts_as_used(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RefusedTargetError, match="was not searched for filesystems"):
        look(image, writes=True, name=image)


def test_a_target_that_may_not_be_read_is_one_sentence() -> None:
    # pytest's own directories are closed to others
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o755)
        image = Path(place) / "user.raw"
        image.write_bytes(b"x" * 2 * MIB)
        image.chmod(0o000)
        assert words_of_nobody(image) == f"cannot read {image}: Permission denied"


def words_of_nobody(image: Path) -> str:
    """What a user without any rights is told."""
    script = f"""
import os
from pathlib import Path
from virtune.bench.permission import admit
from virtune.model.errors import RefusedTargetError
os.setegid(65534); os.seteuid(65534)
try:
    admit(Path({str(image)!r}), span_bytes=1, writes=False, allow_write_to=None, allow_in_use=False)
except RefusedTargetError as error:
    print(error.message)
"""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_a_target_on_a_read_only_filesystem_is_refused_before_anything_runs(tmp_path: Path) -> None:
    place = tmp_path / "ro"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", place], check=True)
    try:
        (place / "x.raw").write_bytes(b"x" * 4 * MIB)
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        with pytest.raises(RefusedTargetError, match="is read-only"):
            look(place / "x.raw", writes=True, name=place / "x.raw")
    finally:
        subprocess.run(["umount", "-l", place], check=True)
