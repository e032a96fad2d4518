# SPDX-License-Identifier: Apache-2.0
"""Does virtune harm data? Targets that must not be written, scratch directories of every name, a second user.

    python -m benchmarks.harm

As root, on a host with loop devices, QEMU and fio. Every forbidden target is named with `--allow-write-to`, as
somebody does who is wrong about what it is, and must be refused with its content unchanged. Every scratch directory
must be used, and what lies beside it must stay as it was. A user is made, runs the verbs before and after root did,
and is removed. Prints three tables in Markdown, and exits with 1 when anything was harmed or was not refused.
"""

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.another_user import as_user
from tests.bench.place_names import NAMES

MIB = 1024**2
LOAD = ("--rounds", "1", "--seconds", "200ms", "--ramp", "0s", "-q")
WRITES = ("--workload", "rw=randwrite,bs=4k,iodepth=4", *LOAD)
REFUSED = (2, 3)
USER = "virtune-harm"
ALONE = "alone"


class Place:
    """A directory of this run's, with what it needs to call virtune."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = os.environ | {"XDG_DATA_HOME": str(home / "data"), "TMPDIR": str(home / "t"), "NO_COLOR": "1"}
        (home / "t").mkdir()

    def virtune(self, *words: str) -> tuple[int, str]:
        """Run virtune; returns its exit status and the first line it said on stderr."""
        argv = [sys.executable, "-m", "virtune", *words]
        done = subprocess.run(
            argv, env=self.env, cwd=self.home, capture_output=True, text=True, timeout=300, check=False
        )
        return done.returncode, (done.stderr.strip().splitlines() or [""])[0].replace(str(self.home) + "/", "")

    def file(self, name: str, size: int = 8 * MIB) -> Path:
        """Make a file that is written in full."""
        path = self.home / name
        path.write_bytes(os.urandom(size))
        return path


def run(*words: object) -> str:
    """Run a command that must work."""
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True).stdout.strip()


@contextlib.contextmanager
def loop(path: Path, *options: str) -> Iterator[Path]:
    """A loop device over a file."""
    device = run("losetup", "-f", "--show", *options, path)
    try:
        yield Path(device)
    finally:
        run("losetup", "-d", device)


@contextlib.contextmanager
def mounted(device: Path, point: Path) -> Iterator[Path]:
    """A mounted filesystem."""
    point.mkdir(exist_ok=True)
    run("mount", device, point)
    try:
        yield point
    finally:
        run("umount", point)


@contextlib.contextmanager
def running(*words: object, until: Callable[[], bool]) -> Iterator[None]:
    """A program that runs meanwhile."""
    with subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE) as child:
        deadline = time.monotonic() + 20
        while not until() and time.monotonic() < deadline:
            time.sleep(0.02)
        try:
            yield
        finally:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)
            child.kill()  # unshare takes no other leave


def partitioned(path: Path) -> Path:
    """Write a table with one Linux partition behind the first MiB."""
    entry = bytes([0, 0, 0, 0, 0x83, 0, 0, 0]) + (2048).to_bytes(4, "little") + (14 * 2048).to_bytes(4, "little")
    with path.open("r+b") as file:
        file.write(bytes(446) + entry + bytes(48) + b"\x55\xaa")
    return path


def ext4(path: Path) -> Path:
    """Make a filesystem in a file or on a device."""
    run("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", path)
    return path


Target = tuple[str, Path]


def in_files(place: Place) -> Iterator[Target]:
    """Targets that are forbidden by what they are or hold."""
    yield "ext4 in a file", ext4(place.file("ext4.img"))
    yield "swap space, unused", _made(place.file("swap"), "mkswap", "-q")
    yield "a partition table", partitioned(place.file("table"))
    luks = place.file("luks")
    with luks.open("r+b") as file:
        file.write(
            b"LUKS\xba\xbe\0\1aes".ljust(168, b"\0") + b"5d4b5b0c-3b0f-4b0e-8f39-1e0e0a1b2c3d".ljust(40, b"\0")
        )
    yield "LUKS", luks
    raw = place.file("raw")
    for kind, option in (("qcow2", ""), ("qcow", ""), ("vdi", "static=on"), ("vpc", ""), ("vpc", "subformat=fixed"),
                         ("vmdk", ""), ("vhdx", ""), ("qed", ""), ("parallels", "")):  # fmt: skip
        disk = place.home / f"disk{option.partition('=')[2]}.{kind}"
        run("qemu-img", "convert", "-S", "0", "-f", "raw", "-O", kind, *(["-o", option] if option else []), raw, disk)
        yield f"{kind} {option}".strip(), disk
    second = place.file("name-1")
    (place.home / "name-2").hardlink_to(second)
    yield "a file with a second name", second
    link = place.home / "link"
    link.symlink_to(place.home / "ext4.img")
    yield "a link to ext4", link
    sparse = place.home / "sparse"
    sparse.touch()
    os.truncate(sparse, 8 * MIB)
    yield "a file that was never written", sparse
    yield "a file of 4 KiB", place.file("small", 4096)
    yield "the store", _store(place)
    dangling = place.home / "dangling"
    dangling.symlink_to("nowhere")
    yield "a link to nowhere", dangling
    yield "a name that is not there", place.home / "nothing"
    yield "a directory", place.home / "t"
    os.mkfifo(place.home / "fifo")
    yield "a FIFO", place.home / "fifo"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(place.home / "socket"))
        yield "a socket", place.home / "socket"
    yield "a character device", Path("/dev/null")


def held(place: Place) -> Iterator[Target]:
    """Targets that somebody uses."""
    image = place.file("open")
    with image.open("rb") as file, subprocess.Popen(["sleep", "60"], stdin=file) as child:
        yield "open in a process", image
        child.kill()
    lock = f"import fcntl,sys; f=open({str(image)!r},'r+b'); fcntl.lockf(f, 2); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield "locked by a process", image
        assert child.stdin is not None
        child.stdin.close()
    sockets = [place.home / f"nbd{number}" for number in range(2)]
    with running("qemu-system-x86_64", "-S", "-display", "none", "-machine", "none", "-blockdev",
                 f"raw,node-name=d,file.driver=file,file.filename={image}", "-nodefaults",
                 "-pidfile", place.home / "pid", until=(place.home / "pid").exists):  # fmt: skip
        yield "open in a QEMU", image
    with running("qemu-nbd", "-f", "raw", "-t", "-k", sockets[0], image, until=sockets[0].exists):
        yield "exported by qemu-nbd", image
    with running("unshare", "-pf", "--kill-child", "--mount-proc", "qemu-storage-daemon", "--blockdev",
                 f"file,node-name=d,filename={image}", "--nbd-server", f"addr.type=unix,addr.path={sockets[1]}",
                 "--export", "nbd,id=e,node-name=d,writable=on", until=sockets[1].exists):  # fmt: skip
        time.sleep(0.3)
        yield "open in a QEMU of another pid namespace", image
    scratch = place.home / "theirs"
    words = ["compare", "measure", "--rounds", "1", "--seconds", "20s", "--span", "16M", "--scratch", scratch, "-q"]
    words += ["--store", place.home / "x.db"]
    with running(sys.executable, "-m", "virtune", *words, until=lambda: any(scratch.glob("*.raw"))):
        time.sleep(1.5)
        yield "the scratch image of another virtune", next(iter(scratch.glob("*.raw")))


def on_devices(place: Place) -> Iterator[Target]:
    """Block devices that are used or hold something, and files behind them."""
    image = place.file("device", 16 * MIB)
    with loop(image) as device:
        yield "a file below a loop device", image
        with loop(image) as second:
            yield "one of two loop devices over a file", second
        node = place.home / "node"
        os.mknod(node, 0o600 | 0o060000, device.stat().st_rdev)
        with loop(node):
            yield "a device below a loop device over a copied node", device
            yield "the copied node itself", node
        ext4(device)
        yield "a device with ext4", device
        with mounted(device, place.home / "mnt"):
            yield "a mounted device", device
            yield "the file below a mounted device", image
        run("mkswap", "-q", device)
        run("swapon", device)
        yield "swap space in use", device
        run("swapoff", device)
    other = place.file("nameless")
    (place.home / "gone").hardlink_to(other)
    with loop(place.home / "gone"):
        (place.home / "gone").unlink()
        yield "a file below a loop device, whose name is gone", other
    with loop(other, "--read-only") as device:
        yield "a read-only device", device
    disk = partitioned(place.file("disk", 16 * MIB))
    with loop(disk) as device:
        if not Path(f"/sys/block/{device.name}/{device.name}p1").exists():
            subprocess.run(["partx", "--add", device], check=True)  # by us: the kernel may read no such tables
        part = place.home / "partition"
        major, minor = Path(f"/sys/block/{device.name}/{device.name}p1/dev").read_text().split(":")
        os.mknod(part, 0o600 | 0o060000, os.makedev(int(major), int(minor)))
        yield "a device with a partition table", device
        with mounted(ext4(part), place.home / "mnt"):
            yield "a device with a mounted partition", device
            yield "a mounted partition", part
    run("mount", "-t", "tmpfs", "-o", "size=32m", "none", place.home / "mnt")
    (place.home / "mnt" / "x").write_bytes(os.urandom(4 * MIB))
    run("mount", "-o", "remount,ro", place.home / "mnt")
    yield "a file on a read-only filesystem", place.home / "mnt" / "x"
    run("umount", place.home / "mnt")


def _made(path: Path, *words: str) -> Path:
    run(*words, path)
    return path


def _store(place: Place) -> Path:
    store = place.home / "store.db"
    for _ in range(2):
        place.virtune("measure", "--rig", "metal", *LOAD, "--span", "8M", "--scratch", str(place.home / "s"),
                      "--store", str(store))  # fmt: skip
    with store.open("ab") as file:
        file.write(os.urandom(MIB))
    return store


def content(path: Path) -> str:
    """What must not change: a digest of the content, empty where there is none to be read."""
    if path.is_file() or path.is_block_device():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return ""


def targets(place: Place) -> Iterator[str]:
    """Try every forbidden target and yield the rows of a table; a row that begins with `| **` is a fault."""
    for source in (in_files, on_devices, held):
        for name, path in source(place):
            before = content(path)
            status, said = place.virtune(
                "measure", "--rig", "metal", *WRITES, "--target", str(path), "--allow-write-to", str(path)
            )
            good = status in REFUSED and content(path) == before
            yield f"| {name if good else f'**{name}**'} | {status} | {said.removeprefix('error: ')[:150]} |"
    plain = place.file("plain")
    for name, leave in (
        ("a file that was not named", ()),
        ("a file, and another one named", ("--allow-write-to", str(place.home / "raw"))),
    ):
        before = content(plain)
        status, said = place.virtune("compare", "measure", "--rig", "metal", *WRITES, "--target", str(plain), *leave)
        good = status in REFUSED and content(plain) == before
        yield f"| {name if good else f'**{name}**'} | {status} | {said.removeprefix('error: ')[:150]} |"
    yield _swapped(place)


def _swapped(place: Place) -> str:
    """Let a name change its meaning all the time; the file that is refused must never be written."""
    ours, victim, link = place.file("ours"), ext4(place.file("victim")), place.home / "flip"
    before, statuses = content(victim), []
    flip = f"""
import os, time
while True:
    for name in ({str(ours)!r}, {str(victim)!r}):
        os.symlink(name, {str(link) + "~"!r}); os.rename({str(link) + "~"!r}, {str(link)!r}); time.sleep(0.003)
"""
    with running(sys.executable, "-c", flip, until=link.exists):
        for _ in range(12):
            words = ("--target", str(link), "--allow-write-to", str(link))
            statuses.append(place.virtune("compare", "measure", "--rig", "metal", *WRITES, *words)[0])
    name = "a link that leads elsewhere every 3 ms, 12 times"
    good = content(victim) == before and {*statuses} <= {0, *REFUSED}
    return (
        f"| {name if good else f'**{name}**'} | {' '.join(map(str, statuses))} | the other file was never written |"
    )


def directories(place: Place) -> Iterator[str]:
    """Use scratch directories of every name, and look at what lies beside them."""
    for kind, name in NAMES.items():
        home = place.home / "names" / kind
        home.mkdir(parents=True)
        beside = [home / one for one in ("foo", "bar", "a", "back", "filename", "2", "x")]
        for path in beside:
            path.write_bytes(os.urandom(MIB))
        before = [content(path) for path in beside]
        found = []
        for rig in ("metal", "storage-daemon"):
            status, said = place.virtune(
                "measure", "--rig", rig, *LOAD, "--span", "8M", "--scratch", str(home / name)
            )
            found.append(f"{rig} {status}{': ' + said if status else ''}")
        place.virtune("host", "clean", "--images", "--scratch", str(home / name))
        shutil.rmtree(home / name, ignore_errors=True)
        used = 2 if kind == "not text" else 0
        good = [content(path) for path in beside] == before and {*home.iterdir()} == {*beside}
        good = good and all(f" {used}" in one for one in found)
        yield f"| {kind if good else f'**{kind}**'} | {'; '.join(found)} |"


def second_user(place: Place) -> Iterator[str]:
    """Run verbs with their defaults as a new user, before and after root used them, and remove the user."""
    run("useradd", "--create-home", USER)
    uid = int(run("id", "-u", USER))
    quick = ("--span", "8M", *LOAD)
    verbs = (
        ("probe",), ("measure", "--rig", "metal", *quick), ("check", "--seconds", "10s", "--span", "8M", "-q"),
        ("compare", "--vary", "disk.aio=threads,io_uring", *quick),
        ("tune", "--vary", "disk.aio=threads,io_uring", "--budget", "130s", "--span", "8M", "-q"),
        ("list",), ("show", "last"), ("knobs",), ("study", "list"), ("clean", "--images"),
    )  # fmt: skip

    def all_verbs() -> dict[str, int]:
        home = Path(run("getent", "passwd", USER).split(":")[5])
        found = {}
        for done in as_user(uid, home, *verbs, seconds=900):
            found[done.words[0]] = done.status
            if done.status or "Traceback" in done.stderr:
                print(done.words, done.stderr, file=sys.stderr)
        return found

    try:
        before = all_verbs()
        plain = os.environ | {"HOME": str(place.home)}
        argv = [sys.executable, "-m", "virtune", "compare", "measure", "--rig", "metal", *quick]
        by_root = subprocess.run(argv, env=plain, capture_output=True, check=False).returncode
        after = all_verbs()
    finally:
        run("userdel", "--remove", USER)
        shutil.rmtree(f"/var/tmp/virtune-{uid}", ignore_errors=True)
    for verb, status in before.items():
        good = status == after[verb] == by_root == 0
        yield f"| {verb if good else f'**{verb}**'} | {status} | {after[verb]} |"


def main() -> int:
    """Run all and print it; returns 1 when there was a fault."""
    if ALONE not in sys.argv:
        # a mount namespace that another program makes meanwhile keeps a copy of each mount, and its device busy
        own = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "benchmarks.harm", ALONE]
        return subprocess.run(own, check=False).returncode
    faults = 0
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="harm") as directory:
        place = Place(Path(directory))
        for head, rows in (
            ("| forbidden target | exit | what virtune says |\n|---|---|---|", targets(place)),
            ("\n| scratch directory's name | rig and exit |\n|---|---|", directories(place)),
            ("\n| verb | a user's exit before root ran virtune | and after |\n|---|---|---|", second_user(place)),
        ):
            print(head)
            count = 0
            for row in rows:
                print(row, flush=True)
                faults += row.startswith("| **")
                count += 1
            print(f"\n{count} rows", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
