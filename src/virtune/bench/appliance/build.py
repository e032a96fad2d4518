# SPDX-License-Identifier: Apache-2.0
"""The appliance: a kernel and an initramfs with busybox, fio and our agent, cached by its content; which one the rig
boots.

The name of an appliance is a hash of everything in it, so a cached one is never out of date: a newer fio, kernel or
agent makes another appliance. One is used only while nobody but us and root could have changed it, and its files are
those of which the digests stand beside them; else it is made again.

The initramfs is written here so that neither root, a `cpio` program nor a directory of copies is needed, and so that
the same content always gives the same bytes: owner, times and order do not depend on the builder. The kernel inside a
distribution's `vmlinuz` is unpacked once here, where QEMU was built to start it through PVH: a guest under TCG
unpacks it for half a second at every boot.
"""

import bz2
import contextlib
import functools
import gzip
import hashlib
import json
import lzma
import os
import re
import shutil
import stat
import struct
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from virtune import shell, warden
from virtune.bench.appliance.sources import (
    GENERAL_KERNEL,
    KERNEL_PACKAGE,
    Sources,
    find_sources,
    libraries,
    stand_ins,
)
from virtune.bounded import write_whole
from virtune.model.errors import PreconditionError
from virtune.packages import hint_for
from virtune.probe.access import read_trusted, why_exchangeable

_ALIGNED = 4
_TRAILER = "TRAILER!!!"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveEntry:
    """One name in the archive, without a leading slash: a file, a directory, or a link with its target as content."""

    name: str
    mode: int
    content: bytes = b""


def file(name: str, content: bytes, *, program: bool = False) -> ArchiveEntry:
    """Return a plain file, executable where it is a program."""
    return ArchiveEntry(name=name, mode=stat.S_IFREG | (0o755 if program else 0o644), content=content)


def link(name: str, target: str) -> ArchiveEntry:
    return ArchiveEntry(name=name, mode=stat.S_IFLNK | 0o777, content=target.encode())


def archive(entries: Iterable[ArchiveEntry], *, directories: Iterable[str] = ()) -> bytes:
    """Write the archive; the directories above each name are made, and those of `directories` as well, empty."""
    by_name = {entry.name: entry for entry in entries}
    for name in [*directories, *by_name]:
        for above in map(str, PurePosixPath(name).parents[:-1]):
            by_name.setdefault(above, ArchiveEntry(name=above, mode=stat.S_IFDIR | 0o755))
    for name in directories:
        by_name.setdefault(name, ArchiveEntry(name=name, mode=stat.S_IFDIR | 0o755))
    written = [_record(number, by_name[name]) for number, name in enumerate(sorted(by_name), 1)]
    return b"".join([*written, _record(0, ArchiveEntry(name=_TRAILER, mode=0))])


def _record(number: int, entry: ArchiveEntry) -> bytes:
    name = entry.name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (number, entry.mode, 0, 0, links, 0, len(entry.content), 0, 0, 0, 0, len(name), 0)
    header = b"070701" + "".join(f"{field:08x}" for field in fields).encode()
    return _padded(header + name) + _padded(entry.content)


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % _ALIGNED)


_SECONDS = 60.0
_LARGEST = 512 * 1024**2

_NOTE = 4
"""The type of an ELF program header that holds notes."""

_PVH = 18
"""The type of the note XEN_ELFNOTE_PHYS32_ENTRY, by which QEMU finds where to enter."""


def unpacked_kernel(image: bytes) -> bytes | None:
    """Return the ELF file inside a bzImage; None for another file, and where it cannot be unpacked or started through
    PVH.
    """
    try:
        if image[0x202:0x206] != b"HdrS":
            return None
        begin = ((image[0x1F1] or 4) + 1) * 512 + struct.unpack_from("<I", image, 0x248)[0]
        packed = image[begin : begin + struct.unpack_from("<I", image, 0x24C)[0]]
        unpack = next((way for magic, way in _WAYS.items() if packed.startswith(magic)), None)
        found = None if unpack is None else unpack(packed)
        return found if found is not None and _enters_by_pvh(found) else None
    except (struct.error, IndexError, ValueError, OSError, EOFError, lzma.LZMAError, zlib.error, shell.CommandError):
        return None


def _by_program(name: str, packed: bytes) -> bytes | None:
    """Unpack by a program; None where it is not installed, or too much comes of it. Raises CommandError."""
    if shutil.which(name) is None:
        return None
    with tempfile.TemporaryDirectory(prefix="virtune-") as place:
        source, plain = Path(place) / "packed", Path(place) / "plain"
        source.write_bytes(packed)
        into = ["-o", str(plain)] if name == "zstd" else [str(plain)]
        shell.run([name, "-d", "-q", "-f", str(source), *into], timeout_seconds=_SECONDS)
        return plain.read_bytes() if plain.stat().st_size <= _LARGEST else None


_WAYS: Mapping[bytes, Callable[[bytes], bytes | None]] = {
    b"\x1f\x8b": lambda packed: zlib.decompressobj(31).decompress(packed, _LARGEST),
    b"\xfd7zXZ\0": lambda packed: lzma.LZMADecompressor().decompress(packed, _LARGEST),
    b"BZh": lambda packed: bz2.BZ2Decompressor().decompress(packed, _LARGEST),
    # the kernel's build adds the size in four bytes
    b"\x02\x21\x4c\x18": lambda packed: _by_program("lz4", packed[:-4]),
    b"\x28\xb5\x2f\xfd": lambda packed: _by_program("zstd", packed[:-4]),
}
"""How a kernel is unpacked, by its first bytes."""


def _enters_by_pvh(kernel: bytes) -> bool:
    """Whether an ELF file has the note that QEMU enters it by."""
    if kernel[:5] != b"\x7fELF\x02":
        return False
    table, size, count = *struct.unpack_from("<Q", kernel, 32), *struct.unpack_from("<HH", kernel, 54)
    for at in range(table, table + size * count, size):
        kind, offset, length = *struct.unpack_from("<I", kernel, at), *struct.unpack_from("<Q16xQ", kernel, at + 8)
        if kind == _NOTE and _PVH in _notes(kernel[offset : offset + length]):
            return True
    return False


def _notes(notes: bytes) -> set[int]:
    found, at = set(), 0
    with contextlib.suppress(struct.error):
        while at < len(notes):
            name, text, kind = struct.unpack_from("<III", notes, at)
            at += 12 + (name + 3 & ~3) + (text + 3 & ~3)
            found.add(kind)
    return found


MODULES = (
    "virtio_pci", "virtio_console", "virtio_blk", "virtio_scsi", "sd_mod", "nvme", "ahci", "ata_piix",
    "crc32c_generic", "ext4",
)  # fmt: skip
"""The kernel modules that a guest may need, unless built in; their dependencies are added."""

SCHEDULERS: Mapping[str, str] = {"kyber": "kyber_iosched", "bfq": "bfq"}
"""The kernel modules of I/O schedulers; the others are built in."""

BESIDES = frozenset({"xfs", *SCHEDULERS.values()})
"""Modules that are in an appliance only where an arm needs them: with xfs it is half as large again."""

AT_BOOT = ("virtio_pci", "virtio_console")
"""The modules that the agent needs. A disk's modules are loaded when there is such a disk: each costs boot time."""

_OURS = Path(__file__).resolve().parents[2] / "guest"
"""Our own files in the appliance."""

_SCRIPTS = ("agent", "armed", "barrier", "disk", "mounted")

_KEPT = re.compile(r"(.*/)?(ld-linux.*|lib(c|m|z|aio|numa|dl|pthread|rt|uring|atomic|gcc_s))\.so(\..*)?")
"""The libraries of fio that a load calls; all others are for network storage, and are replaced by stubs."""

_EMPTY = ("dev", "proc", "run", "sys", "tmp")
_DESCRIPTION, _DIGESTS = "appliance.json", "digests.json"
_PART_BYTES = 1024**2
LOCK = ".lock"
_PACKED, _PLAIN = "vmlinuz", "vmlinux"
_FORMAT = 2
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Appliance:
    """A bootable guest image. `modules` are the kernel modules in it, `built_in` those built into its kernel."""

    key: str
    kernel: Path
    initramfs: Path
    release: str
    modules: frozenset[str]
    built_in: frozenset[str]
    agent: bool
    size_bytes: int
    made: str

    def drives(self, module: str) -> bool:
        """Whether its kernel has this driver, built in or as a module."""
        return module in self.modules | self.built_in


def appliance_for(sources: Sources, home: Path, *, besides: frozenset[str] = frozenset()) -> tuple[Appliance, bool]:
    """Return the appliance made from these sources, and whether it was built now. `besides` are the modules of
    `BESIDES` that are to be in it.
    """
    modules = (*MODULES, *sorted(besides))
    entries = _entries(sources, modules)
    content = archive(entries, directories=_EMPTY)
    kernel = sources.kernel.read_bytes()
    parts = (bytes([_FORMAT]), *(hashlib.sha256(part).digest() for part in (kernel, content)))
    key = hashlib.sha256(b"".join(parts)).hexdigest()[:16]
    home.mkdir(parents=True, exist_ok=True)
    home = home.resolve()
    if (why := why_exchangeable(home)) is not None:
        hint = "XDG_CACHE_HOME names a directory of yours, below directories of yours or root's"
        raise PreconditionError(f"cannot keep guests in {home}: {why}", hint=hint)
    place = home / key
    if (known := _read(place)) is not None and is_whole(place):
        if known.kernel == place / _PACKED and _unpack(place, kernel):
            sign(place)  # there is a program now that unpacks it
        return _read(place) or known, False
    with warden.filled(place) as work:
        write_whole(work / _PACKED, kernel, mode=0o644)
        _unpack(work, kernel)
        write_whole(work / "initramfs", content, mode=0o644)
        described = _description(sources, modules, entries, len(content))
        write_whole(work / _DESCRIPTION, f"{json.dumps(described)}\n".encode(), mode=0o644)
        sign(work)
        try:
            if not is_whole(place):  # another process may have made it meanwhile, and boot it
                warden.remove(place)
                work.rename(place)
        except OSError:
            hint = "move it; XDG_CACHE_HOME puts the cache elsewhere"
            raise PreconditionError(f"{place} is in the way; virtune did not create it", hint=hint) from None
    made = _read(place)
    if made is None:
        raise PreconditionError(f"the appliance in {place} cannot be read")
    return made, True


def is_whole(place: Path) -> bool:
    """Whether a directory of the cache holds what virtune put there: its files are as their digests say, and nobody
    but us and root may write to them.
    """
    try:
        signed = json.loads(read_trusted(place / _DIGESTS))
        files = [place / name for name in signed]
        trusted = warden.doubt(place) is None and all(why_exchangeable(one.resolve()) is None for one in files)
        return trusted and all(_digest(place / name) == digest for name, digest in signed.items())
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def sign(place: Path) -> None:
    """Write the digests of a directory's files beside them, and let nobody else write to these. Raises OSError."""
    files = [path for path in sorted(place.iterdir()) if path.is_file() and path.name not in (_DIGESTS, "owner")]
    for path in files:
        path.chmod(0o644)
    write_whole(place / _DIGESTS, json.dumps({path.name: _digest(path) for path in files}).encode(), mode=0o644)


def _digest(path: Path) -> str:
    """Return the digest of a file's content and of where it has holes, which a guest's memory mostly is."""
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        return _digest_of(path, found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)


@functools.lru_cache(maxsize=32)
def _digest_of(path: Path, *_: int) -> str:
    """Read a file once for each change of it."""
    digest, at = hashlib.blake2b(digest_size=20), 0
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:  # a hole up to the end
                break
            part = os.pread(file.fileno(), _PART_BYTES, at)
            digest.update(at.to_bytes(8, "little") + part)
            at += len(part)
    return f"{size}-{digest.hexdigest()}"


def appliances(home: Path) -> list[Appliance]:
    """Return all stored appliances, oldest first."""
    found = [_read(place) for place in home.iterdir()] if home.is_dir() else []
    return sorted((one for one in found if one is not None), key=lambda one: one.made)


def remove(home: Path, keys: frozenset[str] | None = None) -> list[str]:
    """Remove the appliances with these keys, all of them without any; returns their keys."""
    asked = [one.key for one in appliances(home) if keys is None or one.key in keys]
    return [key for key in asked if warden.remove(home / key)]


def remove_halves(home: Path) -> list[Path]:
    """Remove the remains of killed builds; returns what was removed."""
    return [path for path in _halves(home) if warden.is_abandoned(path) and warden.remove(path)]


def look_alikes(home: Path) -> list[str]:
    """Return what lies where the cache's directories are and was not proven to be virtune's, and what could not be
    removed; with the reason.
    """
    ours = [place for place in home.glob("*") if warden.doubt(place) is None]
    states = (path for place in ours for path in place.glob("booted/*") if path.suffix != LOCK)
    every = sorted({*home.glob("*"), *states, *_halves(home)})
    stuck = [path for path in _halves(home) if warden.is_abandoned(path)]
    left = [f"{path}: something is mounted below it, or another user's files are in it" for path in stuck]
    return left + [f"{path}: {why}" for path in every if (why := warden.doubt(path)) is not None]


def _halves(home: Path) -> list[Path]:
    packages = home.parent / "packages"
    places = ((home, "*"), (home, "*/booted/*"), (packages, "*"), (packages, ".*"))
    return sorted({path for place, names in places for path in place.glob(f"{names}{warden.PARTIAL}")})


def _read(place: Path) -> Appliance | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        if warden.doubt(place) is not None:
            return None
        said = json.loads((place / _DESCRIPTION).read_text())
        if said["format"] != _FORMAT or not (place / _PACKED).is_file() or not (place / "initramfs").is_file():
            return None
        plain = place / _PLAIN
        return Appliance(
            key=place.name,
            kernel=plain if plain.is_file() else place / _PACKED,
            initramfs=place / "initramfs",
            release=said["release"],
            modules=frozenset(said["modules"]),
            built_in=frozenset(said["built_in"]),
            agent=said["agent"],
            size_bytes=said["size_bytes"],
            made=said["made"],
        )
    return None


def _unpack(place: Path, kernel: bytes) -> bool:
    """Put the unpacked kernel beside the packed one, if it can be unpacked and started so, and there is room for it:
    the packed one does without. Returns whether it is there now.
    """
    plain = unpacked_kernel(kernel)
    with contextlib.suppress(OSError):
        if plain is not None:
            write_whole(place / _PLAIN, plain, mode=0o644)
            return True
    return False


def _description(
    sources: Sources, modules: Sequence[str], entries: list[ArchiveEntry], size: int
) -> dict[str, object]:
    return {
        "format": _FORMAT,
        "release": sources.release,
        "modules": [
            Path(e.name).stem for e in entries if e.name.startswith("lib/modules/") and e.name.endswith(".ko")
        ],
        "built_in": sorted(_built_in(sources.modules) & {*modules, *BESIDES}),
        "agent": sources.agent is not None,
        "size_bytes": size,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "from": {
            name: str(path)
            for name, path in (("kernel", sources.kernel), ("busybox", sources.busybox), ("fio", sources.fio))
        },
    }


def _entries(sources: Sources, modules: Sequence[str]) -> list[ArchiveEntry]:
    entries = [file("bin/busybox", sources.busybox.read_bytes(), program=True)]
    entries += [
        link(f"bin/{applet}", "busybox")
        for applet in shell.run([str(sources.busybox), "--list"], timeout_seconds=20).stdout.split()
        if applet != "busybox"
    ]
    entries += [
        file("init", (_OURS / "init").read_bytes(), program=True),
        *(file(f"bin/{name}", (_OURS / name).read_bytes(), program=True) for name in _SCRIPTS),
        file("bin/fio", sources.fio.read_bytes(), program=True),
    ]
    kept = {name: path for name, path in libraries(sources.fio).items() if _KEPT.fullmatch(name)}
    entries += [_library(path) for path in kept.values()]
    if kept:
        beside = next((path.parent for name, path in kept.items() if name.startswith("libc.")), Path("/lib"))
        stubs = stand_ins(sources.fio, kept)
        entries += [file(str(beside / name).lstrip("/"), content) for name, content in stubs.items()]
    if sources.agent is not None:
        entries.append(file("bin/qemu-ga", sources.agent.read_bytes(), program=True))
        entries += [_library(path) for path in libraries(sources.agent).values()]
    return [*entries, *_modules(sources, modules)]


def _library(path: Path) -> ArchiveEntry:
    return file(str(path).lstrip("/"), path.read_bytes(), program=True)


def _modules(sources: Sources, modules: Sequence[str]) -> Iterator[ArchiveEntry]:
    """Yield the wanted modules with their dependencies, and the lists of their loading order."""
    contents, orders = with_dependencies(sources, modules)
    boot = dict.fromkeys(name for wanted in AT_BOOT for name in orders[wanted])
    lacking = [name for name in AT_BOOT if not orders[name] and name not in _built_in(sources.modules)]
    if lacking:
        raise PreconditionError(f"the kernel {sources.release} has no {lacking[0]}, which a guest here needs")
    for name, content in contents.items():
        yield file(f"lib/modules/{name}.ko", content)
    for name, order in orders.items():
        yield file(f"lib/modules/{name}.order", " ".join(order).encode() + b"\n")
    yield file("lib/modules/at-boot", " ".join(boot).encode() + b"\n")


def with_dependencies(sources: Sources, modules: Sequence[str]) -> tuple[dict[str, bytes], dict[str, list[str]]]:
    """Return the wanted modules and all that they depend on, and for each wanted one the order of their loading."""
    at_hand = {path.name.partition(".")[0].replace("-", "_"): path for path in sources.modules.rglob("*.ko*")}
    contents: dict[str, bytes] = {}

    def ordered(name: str) -> list[str]:
        if name not in at_hand:
            return []
        if name not in contents:
            contents[name] = _plain(at_hand[name])
        found = _DEPENDS.search(contents[name])
        depends = found[1].decode().replace("-", "_").split(",") if found and found[1] else []
        return [*(inner for outer in depends for inner in ordered(outer)), name]

    return contents, {name: list(dict.fromkeys(ordered(name))) for name in modules}


def _built_in(modules: Path) -> set[str]:
    lines = modules.joinpath("modules.builtin").read_text().splitlines()
    return {Path(line).name.partition(".")[0].replace("-", "_") for line in lines}


def _plain(path: Path) -> bytes:
    """Return a module as the guest loads it, decompressed if the distribution compresses modules."""
    content = path.read_bytes()
    match path.suffix:
        case ".ko":
            return content
        case ".xz":
            return lzma.decompress(content)
        case ".gz":
            return gzip.decompress(content)
        case ".zst" if shutil.which("zstd") is None:
            hint = hint_for("zstd")
            raise PreconditionError(f"{path} is packed by zstd, which is not installed", hint=hint)
        case ".zst":  # Python reads that format from 3.14 on
            try:
                return _by_program("zstd", content) or b""
            except shell.CommandError as error:
                raise PreconditionError(f"{path} cannot be unpacked: {error.hint or error.message}") from None
        case packed:
            raise PreconditionError(f"{path} is packed as {packed}, which virtune does not read")


_NAME = "guest.json"

BACK = "`virtune host guest build` without --kernel goes back to the distribution's kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The sources of guests: the user's own kernel with its modules, None for the distribution's.

    `key` is the appliance last made from them, empty if none was.
    """

    kernel: Path | None = None
    modules: Path | None = None
    agent: bool = False
    key: str = ""


def chosen() -> Chosen:
    """Return the user's choice; one that cannot be read, or that others could have made, counts as none."""
    with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):
        said = json.loads(read_trusted(shell.data_directory() / _NAME))
        key = said.get("key")
        return Chosen(
            kernel=_path(said.get("kernel")),
            modules=_path(said.get("modules")),
            agent=said.get("agent") is True,
            key=key if isinstance(key, str) else "",
        )
    return Chosen()


def choose(what: Chosen) -> None:
    """Store the choice of sources, atomically, with what must not be lost: a cache may be deleted at any time.

    Raises PreconditionError where it cannot be written.
    """
    place = shell.data_directory()
    kernel, modules = (None if one is None else str(one.absolute()) for one in (what.kernel, what.modules))
    said = {"kernel": kernel, "modules": modules, "agent": what.agent, "key": what.key}
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(place / _NAME, f"{json.dumps(said)}\n".encode(), mode=0o644)
    except OSError as error:
        raise PreconditionError(f"cannot write {place / _NAME}: {error.strerror}") from None


def chosen_appliance(cache: Path) -> Appliance:
    """Return the appliance that the rig boots, building it if needed.

    Raises PreconditionError with what to do when the chosen sources are gone.
    """
    what = chosen()
    found, _ = appliance_for(_sources(what, cache, KERNEL_PACKAGE), cache / "appliances")
    if found.key != what.key:
        # only `virtune host guest list` needs it
        with contextlib.suppress(PreconditionError):
            choose(replace(what, key=found.key))
    return found


def appliance_besides(cache: Path, besides: frozenset[str]) -> Appliance:
    """Return the appliance that the rig boots with further modules in it."""
    sources = _sources(chosen(), cache, KERNEL_PACKAGE)
    return appliance_for(sources, cache / "appliances", besides=besides)[0]


def general_appliance(cache: Path, *, module: str, besides: frozenset[str] = frozenset()) -> Appliance:
    """Return an appliance with the distribution's general kernel, for a driver that the cloud kernel lacks.

    Raises PreconditionError where the user chose a kernel, which is never replaced.
    """
    what = chosen()
    if what.kernel is not None:
        raise PreconditionError(
            f"the kernel {what.kernel} that you chose has no {module}, which this bus needs", hint=BACK
        )
    return appliance_for(_sources(what, cache, GENERAL_KERNEL), cache / "appliances", besides=besides)[0]


def _sources(what: Chosen, cache: Path, package: str) -> Sources:
    if what.kernel is not None and not what.kernel.is_file():
        raise PreconditionError(f"the kernel {what.kernel} that you chose is gone", hint=BACK)
    return find_sources(
        cache / "packages", kernel=what.kernel, modules=what.modules, agent=what.agent, package=package
    )


def _path(said: object) -> Path | None:
    return Path(said) if isinstance(said, str) and said.startswith("/") else None
