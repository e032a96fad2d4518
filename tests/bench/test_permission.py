# SPDX-License-Identifier: Apache-2.0
"""virtune writes to nothing it did not make unless told so by name, and not to what is in use even then."""

import contextlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest
from tests.conftest import eventually

from virtune.bench.permission import admit
from virtune.bench.qemu.passthrough import Drive, require_free
from virtune.model.errors import RefusedTargetError
from virtune.probe.claims import image_format
from virtune.probe.holders import locks_on

real = pytest.mark.real
pytestmark = pytest.mark.xdist_group("loop devices")  # making one opens all others for a moment

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
    with loop_over(backing) as device:
        yield device


@contextlib.contextmanager
def loop_over(path: Path) -> Iterator[Path]:
    found = subprocess.run(["losetup", "-f", "--show", path], capture_output=True, text=True, check=True)
    device = Path(found.stdout.strip())
    yield device
    subprocess.run(["losetup", "-d", device], check=True)
    backing = Path("/sys/block") / device.name / "loop" / "backing_file"
    assert eventually(lambda: not backing.exists())  # it goes when the last who looks at it has closed it


def look(target: Path, *, writes: bool = False, name: Path | None = None, in_use: bool = False) -> int:
    with admit(
        target,
        span_bytes=1 << 40,
        writes=writes,
        allow_write_to=() if name is None else (str(name),),
        allow_in_use=in_use,
    ) as held:
        return held.size_bytes


def admitted(target: Path) -> bool:
    try:
        return look(target, writes=True, name=target) > 0
    except RefusedTargetError:
        return False


def test_reading_a_written_file_needs_no_leave(image: Path) -> None:
    assert look(image) == 4 * MIB


def test_writing_needs_the_target_s_own_name(image: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedTargetError, match=r"the load writes to .*, which virtune did not create") as caught:
        look(image, writes=True)
    assert caught.value.hint is not None
    assert f"--allow-write-to {image}" in caught.value.hint
    with pytest.raises(RefusedTargetError):
        look(image, writes=True, name=tmp_path)
    assert look(image, writes=True, name=image) == 4 * MIB


def test_leave_for_another_target_is_none(image: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.raw"
    other.write_bytes(b"x" * 4 * MIB)
    for name in (other, tmp_path / "none", image.with_name("user.ra")):
        with pytest.raises(RefusedTargetError, match="which virtune did not create"):
            look(image, writes=True, name=name)


def test_what_a_name_led_to_when_it_was_looked_at_is_what_is_held(image: Path, tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_bytes(b"v" * 2 * MIB)
    link.symlink_to(image)
    with admit(link, span_bytes=1 << 40, writes=True, allow_write_to=(str(image),), allow_in_use=False) as held:
        link.unlink()
        link.symlink_to(victim)
        image.rename(tmp_path / "moved")
        with held.path.open("r+b") as file:
            file.write(b"overwritten")
    assert (tmp_path / "moved").read_bytes().startswith(b"overwritten")
    assert victim.read_bytes() == b"v" * 2 * MIB
    assert not held.path.exists()


def test_a_file_with_a_second_name_is_overwritten_under_both_so_it_needs_a_second_word(image: Path) -> None:
    image.with_name("other").hardlink_to(image)
    with pytest.raises(RefusedTargetError, match="it has 2 names"):
        look(image, writes=True, name=image)
    assert look(image, writes=True, name=image, in_use=True)


@pytest.mark.parametrize(("start", "words"), [(0, "has locked it"), (201, "locks it as QEMU locks an image")])
def test_a_lock_tells_of_a_holder_that_no_process_list_shows(start: int, words: str, image: Path) -> None:
    # locked through a name that is gone by a process of which only its lock is looked at here
    script = f"""
import fcntl, struct, sys
file = open({str(image)!r}, "r+b")
fcntl.fcntl(file, 37, struct.pack("@hhqqi4x", fcntl.F_RDLCK, 0, {start}, 1, 0))
print("locked", flush=True)
sys.stdin.read()
"""
    words_of_it = [sys.executable, "-c", script]
    with subprocess.Popen(words_of_it, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        assert [one.endswith(words) for one in locks_on(image)] == [True]
        with pytest.raises(RefusedTargetError, match=words):
            look(image, writes=True, name=image)
        assert holder.stdin is not None
        holder.stdin.close()
    assert list(locks_on(image)) == []
    assert look(image, writes=True, name=image)


def test_a_database_is_no_disk_to_write_to_such_as_the_store_itself(tmp_path: Path) -> None:
    path = tmp_path / "virtune.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("create table studies (id)")
        database.execute("insert into studies values (randomblob(2000000))")
        database.commit()
    with pytest.raises(RefusedTargetError, match="is an SQLite database"):
        look(path, writes=True, name=path)


HEADS = {
    "a qcow2 image": b"QFI\xfb", "a QED image": b"QED\0", "a VHDX image": b"vhdxfile", "a VHD image": b"conectix",
    "a VMDK image": b"KDMV", "a VDI image": bytes(64) + b"\x7f\x10\xda\xbe", "a Parallels image": b"WithouFreSpacExt",
    "an SQLite database": b"SQLite format 3\0",
}  # fmt: skip


@pytest.mark.parametrize("name", HEADS)
def test_images_of_every_format_are_known_by_how_they_begin(name: str, image: Path) -> None:
    with image.open("r+b") as file:
        file.write(HEADS[name])
    assert image_format(image) == name
    with pytest.raises(RefusedTargetError, match=name):
        look(image, writes=True, name=image)


def test_a_fixed_vhd_is_known_by_how_it_ends(image: Path) -> None:
    assert image_format(image) is None
    with image.open("r+b") as file:
        file.seek(-512, os.SEEK_END)
        file.write(b"conectix")
    assert image_format(image) == "a VHD image"


@real
@pytest.mark.parametrize(
    ("kind", "options"),
    [("vdi", "static=on"), ("vpc", ""), ("vpc", "subformat=fixed"), ("vmdk", ""), ("vhdx", ""), ("qed", ""),
     ("parallels", ""), ("qcow", ""), ("qcow2", "")],
)  # fmt: skip
def test_images_as_qemu_writes_them_need_a_second_word(kind: str, options: str, image: Path, tmp_path: Path) -> None:
    disk = tmp_path / f"disk.{kind}"
    words = ["qemu-img", "convert", "-S", "0", "-f", "raw", "-O", kind, *(["-o", options] if options else [])]
    subprocess.run([*words, image, disk], check=True)
    with pytest.raises(RefusedTargetError, match=r"in use: .*(is a |holds )"):
        look(disk, writes=True, name=disk)


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


UNSHOWN = ("socket", "io_uring")
"""Ways to hold a file that are in no list of a process: sent to nobody yet, registered and closed."""

WAYS = ("descriptor", "shared map", "private map", "lock", *UNSHOWN)

HOLDING = """
import ctypes, fcntl, mmap, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)  # Python's own map keeps a descriptor
way, name = sys.argv[1:]
file = os.open(name, os.O_RDWR)
if way == "lock":
    fcntl.lockf(file, fcntl.LOCK_EX)
elif way == "socket":
    ends = socket.socketpair()
    socket.send_fds(ends[0], [b"x"], [file])
    os.close(file)
elif way == "io_uring":
    ring = libc.syscall(425, 2, ctypes.create_string_buffer(120))
    assert libc.syscall(427, ring, 2, (ctypes.c_int * 1)(file), 1) == 0, os.strerror(ctypes.get_errno())
    os.close(file)
elif way != "descriptor":
    flags = mmap.MAP_SHARED if way == "shared map" else mmap.MAP_PRIVATE
    size, number = ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype, libc.mmap.argtypes = size, [size, size, number, number, number, ctypes.c_long]
    assert libc.mmap(0, 65536, mmap.PROT_READ, flags, file, 0) != 2**64 - 1
    os.close(file)
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def held_by(way: str, path: Path) -> Iterator[int]:
    """Another process that holds a file in this way; yields its pid."""
    words = [sys.executable, "-c", HOLDING, way, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder.pid
        holder.kill()


def seen(way: str, pid: int) -> str:
    if way in UNSHOWN:
        return "something has it open, and no process shows it"
    return f"process {pid} has locked it" if way == "lock" else rf"open in process {pid} \(python"


@pytest.mark.parametrize("name", ["its own", "another", "none", "one in another mount"])
@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_a_process_holds_in_any_way_is_in_use(way: str, name: str, image: Path, tmp_path: Path) -> None:
    held = image
    if name in ("another", "none"):
        held = tmp_path / "other"
        held.hardlink_to(image)
    with contextlib.ExitStack() as ends:
        if name == "one in another mount":
            there = tmp_path / "there"
            there.mkdir()
            subprocess.run(["mount", "--bind", tmp_path, there], check=True)
            ends.callback(lambda: subprocess.run(["umount", "-l", there], check=True))
            held = there / image.name
        pid = ends.enter_context(held_by(way, held))
        if name == "none":
            held.unlink()
        with pytest.raises(RefusedTargetError, match=seen(way, pid)):
            look(image, writes=True, name=image)
        assert look(image, writes=True, name=image, in_use=True)


RINGS = """
import ctypes, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
how, name = sys.argv[1:]
file = os.open(name, os.O_RDWR)
ring = libc.syscall(425, 2, ctypes.create_string_buffer(120))
assert libc.syscall(427, ring, 2, (ctypes.c_int * 3)(-1, file, -1), 3) == 0, os.strerror(ctypes.get_errno())
os.close(file)
if how == "its name is gone":
    os.unlink(name)
if how == "the ring is mapped alone":
    size, number = ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype, libc.mmap.argtypes = size, [size, size, number, number, number, ctypes.c_long]
    assert libc.mmap(0, 4096, 3, 1, ring, 0) != 2**64 - 1
    os.close(ring)
buffer = ctypes.create_string_buffer(64 * 2**20)
part = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), len(buffer))
def use():  # while buffers come and go the kernel shows nothing of the ring
    while True:
        libc.syscall(427, ring, 0, part, 1)
        libc.syscall(427, ring, 1, None, 0)
for _ in range(4 if how == "the ring is in use" else 0):
    threading.Thread(target=use, daemon=True).start()
print("held", flush=True)
sys.stdin.read()
"""
HIDDEN = r"process {pid} \(python[^)]*\) has given an io_uring a file that cannot be looked at, and that may be it"


@real
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("its own name", r"is open in process {pid} \(python"),
        ("another name", r"is open in process {pid} \(python"),
        ("a name in its own root", r"is open in process {pid} \(python"),
        ("the ring is in use", r"is open in process {pid} \(python"),
        ("its name is gone", HIDDEN),
        ("the ring is mapped alone", HIDDEN),
    ],
)
def test_a_block_device_that_only_an_io_uring_has_is_in_use(
    how: str, said: str, loop_device: Path, tmp_path: Path
) -> None:
    """A lease, by which the kernel tells of a file, is not given on a device."""
    name, words = loop_device, [sys.executable, "-c", RINGS, how]
    if how not in ("its own name", "the ring is in use"):
        name = tmp_path / "dev" / "a b\nc"
        name.parent.mkdir()
        os.mknod(name, 0o600 | stat.S_IFBLK, loop_device.stat().st_rdev)
    if how == "a name in its own root":
        bind = 'mount --bind "$0" /mnt && exec "$@"'
        words, name = ["unshare", "--mount", "sh", "-c", bind, str(name.parent), *words], Path("/mnt", name.name)
    with subprocess.Popen([*words, str(name)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        for _ in range(8 if how == "the ring is in use" else 1):
            with pytest.raises(RefusedTargetError, match=said.format(pid=holder.pid)):
                look(loop_device, writes=True, name=loop_device)
        holder.kill()
    assert admitted(loop_device)


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with an overlay of two lower layers, whose names are odd, with a file in each layer."""
    place = tmp_path_factory.mktemp("overlay")
    for name in ("up", "work", "low:er", "low er", "merged", "again"):
        (place / name / "deep").mkdir(parents=True)
    shutil.rmtree(place / "work" / "deep")
    layers = {"up": place / "up", "low:er": place / "low:er", "low er": place / "low er"}
    for name, layer in layers.items():
        (layer / "deep" / name).write_bytes(b"x" * 4 * MIB)
    lower = f"{place}/low\\:er:{place}/low er"
    options = f"lowerdir={lower},upperdir={place}/up,workdir={place}/work"
    subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", place / "merged"], check=True)
    subprocess.run(["mount", "--bind", place / "merged" / "deep", place / "again"], check=True)
    yield place
    for mount in ("again", "merged"):
        subprocess.run(["umount", "-l", place / mount], check=True)


@real
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layer", ["up", "low:er", "low er"])
def test_a_file_of_an_overlay_is_held_by_each_of_its_names(way: str, layer: str, overlay: Path) -> None:
    inner, shown = overlay / layer / "deep" / layer, overlay / "merged" / "deep" / layer
    again = overlay / "again" / layer
    for held, target in permutations((inner, shown, again), 2):
        if held != inner and layer != "up":
            continue  # to open it for writing would copy it up, and end the matter
        with held_by(way, held) as pid, pytest.raises(RefusedTargetError, match=seen(way, pid)):
            look(target, writes=True, name=target)
    assert look(inner, writes=True, name=inner)


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


@real
def test_an_unused_block_device_may_be_written_by_name(loop_device: Path) -> None:
    assert look(loop_device, writes=True, name=loop_device) == 32 * MIB


@real
def test_a_signed_block_device_needs_a_second_word(loop_device: Path) -> None:
    subprocess.run(["mkfs.ext4", "-q", "-F", loop_device], check=True)
    with pytest.raises(RefusedTargetError, match=r"in use: .*ext4") as caught:
        look(loop_device, writes=True, name=loop_device)
    assert caught.value.hint is not None
    assert "--allow-in-use" in caught.value.hint
    assert look(loop_device, writes=True, name=loop_device, in_use=True)


@real
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


@real
def test_a_loop_device_is_seen_over_a_file_whose_name_is_gone(tmp_path: Path) -> None:
    backing, name = tmp_path / "backing.raw", tmp_path / "name"
    backing.write_bytes(b"\1" * 4 * MIB)
    name.hardlink_to(backing)
    with loop_over(name) as device:
        name.unlink()
        with pytest.raises(RefusedTargetError, match=rf"in use: the loop device {device.name} stands on it$"):
            look(backing, writes=True, name=backing)
    assert look(backing, writes=True, name=backing)


@real
def test_a_loop_device_is_seen_over_a_copied_node(loop_device: Path, tmp_path: Path) -> None:
    node = tmp_path / "node"
    os.mknod(node, 0o600 | stat.S_IFBLK, loop_device.stat().st_rdev)
    with loop_over(node) as above:
        for target in (loop_device, node):
            with pytest.raises(RefusedTargetError, match=rf"{loop_device.name} is behind {above.name}"):
                look(target, writes=True, name=target)
    assert admitted(node)


@real
def test_two_loop_devices_over_one_file_know_of_each_other(loop_device: Path, tmp_path: Path) -> None:
    backing = tmp_path / "backing.raw"
    with loop_over(backing) as other, pytest.raises(RefusedTargetError, match="stands on the same file") as caught:
        look(loop_device, writes=True, name=loop_device)
    assert f"{other.name} stands on the same file as {loop_device.name}" in caught.value.message
    with backing.open("rb") as file, subprocess.Popen(["sleep", "60"], stdin=file) as holder:
        try:
            with pytest.raises(RefusedTargetError, match=rf"the file behind .* is open in process {holder.pid}"):
                look(loop_device, writes=True, name=loop_device)
        finally:
            holder.kill()


@real
def test_an_image_that_a_qemu_outside_our_pid_namespace_has_open_is_in_use(image: Path, tmp_path: Path) -> None:
    socket = tmp_path / "nbd"
    words = ["qemu-storage-daemon", "--blockdev", f"file,node-name=disk,filename={image}"]
    words += [
        "--nbd-server",
        f"addr.type=unix,addr.path={socket}",
        "--export",
        "nbd,id=out,node-name=disk,writable=on",
    ]
    words += ["--pidfile", str(tmp_path / "pid")]
    script = f"""
from pathlib import Path
from virtune.bench.permission import admit
from virtune.bench.qemu.passthrough import require_free
from virtune.bench.qemu.passthrough import Drive
from virtune.model.errors import RefusedTargetError
try:
    with admit(Path({str(image)!r}), span_bytes=1, writes=True, allow_write_to=({str(image)!r},), allow_in_use=False):
        print("admitted")
except RefusedTargetError as error:
    print(error.message)
"""
    alone = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", script]
    with subprocess.Popen(words) as daemon:
        assert eventually((tmp_path / "pid").exists)
        said = subprocess.run(alone, capture_output=True, text=True, check=True).stdout
        daemon.terminate()
    assert said == f"{image} is in use: a process locks it as QEMU locks an image\n"


@real
def test_a_file_under_a_loop_device_is_in_use_mounted_or_not(loop_device: Path, tmp_path: Path) -> None:
    backing = tmp_path / "backing.raw"
    with pytest.raises(RefusedTargetError, match=rf"the loop device {loop_device.name} stands on it"):
        look(backing, writes=True, name=backing)


@real
def test_a_file_that_holds_a_filesystem_needs_a_second_word(tmp_path: Path) -> None:
    image = tmp_path / "fs.raw"
    image.write_bytes(b"\1" * 16 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "nodiscard", image], check=True)
    with pytest.raises(RefusedTargetError, match="holds ext4"):
        look(image, writes=True, name=image)


@real
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


@pytest.mark.parametrize(("owner", "mode", "unseen"), [(0, 0o666, True), (65534, 0o622, True), (65534, 0o644, False)])
def test_where_others_may_write_what_they_have_open_and_we_cannot_see_counts_as_used(
    owner: int, mode: int, unseen: bool
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o755)
        image = Path(place) / "user.raw"
        image.write_bytes(b"x" * 2 * MIB)
        os.chown(image, owner, -1)
        image.chmod(mode)
        said = words_of_nobody(image, writes=True)
        assert ("processes could not be looked at: 1 (" in said) is unseen
        assert (said == "admitted") is not unseen


def words_of_nobody(image: Path, *, writes: bool = False) -> str:
    """What a user without any rights is told."""
    name = str(image)
    script = f"""
import os
from pathlib import Path
from virtune.bench.permission import admit
from virtune.bench.qemu.passthrough import require_free
from virtune.bench.qemu.passthrough import Drive
from virtune.model.errors import RefusedTargetError
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    with admit(Path({name!r}), span_bytes=1, writes={writes}, allow_write_to=({name!r},), allow_in_use=False):
        print("admitted")
except RefusedTargetError as error:
    print(error.message)
"""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


@real
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


def as_drive(device: Path) -> Drive:
    return Drive(address="0000:01:00.0", group="7", node=str(device), number="7:0", size_bytes=32 * MIB, serial="S")


@real
def test_a_drive_for_a_guest_is_refused_for_what_is_on_it_and_always_while_anything_uses_it(
    loop_device: Path,
) -> None:
    drive = as_drive(loop_device)
    require_free(drive, allow_in_use=False)
    subprocess.run(["mkfs.ext4", "-q", "-F", loop_device], check=True)
    with pytest.raises(RefusedTargetError, match=r"is not empty, and nothing below a guest protects .* holds ext4"):
        require_free(drive, allow_in_use=False)
    require_free(drive, allow_in_use=True)
    holder = [sys.executable, "-c", "import sys; f = open(sys.argv[1]); print(flush=True); input()", str(loop_device)]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(
            RefusedTargetError, match=r"would be gone from this host: .* is open in process"
        ) as refused:
            require_free(drive, allow_in_use=True)
        assert "no option overrides this" in str(refused.value.hint)
        process.communicate(b"\n")


@real
def test_what_only_looks_at_a_device_or_a_file_for_a_moment_does_not_use_it(loop_device: Path, image: Path) -> None:
    """As `blkid` does, udev's or that of another virtune."""
    for target, drive in ((image, False), (loop_device, False), (loop_device, True)):
        words = ["sh", "-c", f"exec 3<{target}; echo; exec sleep 0.4"]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            if drive:
                require_free(as_drive(target), allow_in_use=False)
            else:
                look(target, writes=True, name=target)
