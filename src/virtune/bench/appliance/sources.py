# SPDX-License-Identifier: Apache-2.0
"""The sources of an appliance: a kernel with its modules, busybox, fio, and optionally the QEMU guest agent.

Installed programs are copied from this host; missing ones are downloaded as distribution packages by the
distribution's client and unpacked into the cache. Nothing is installed, and nothing needs root.

A distribution's fio is linked against many storage systems (Ceph, Gluster, RDMA, ...): 90 MB of libraries that the
loader needs at fio's start, and that no load on a guest's disk calls. Each of them is replaced by a shared object of
a few hundred bytes that defines the symbols which fio imports from it as traps. fio itself is unchanged, so that host
and guest run the same program.
"""

import os
import re
import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

from virtune import shell, warden
from virtune.model.errors import MissingToolError, PreconditionError
from virtune.probe.access import why_exchangeable

_LISTED = re.compile(r"^\s*(?:(?P<name>\S+) => )?(?P<path>/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)

_CODE = b"\x0f\x0b" * 8
"""`ud2`: a program that calls a stub ends at once with SIGILL, and not with a wrong result."""

_PAGE = 0x1000
_SYMBOL = struct.Struct("<IBBHQQ")
_GLOBAL_FUNCTION = 0x12
_UNVERSIONED = 1
_VERDEF_NEXT = 16
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 4, 5, 6, 10, 11, 14
_DT_VERSYM, _DT_VERDEF, _DT_VERDEFNUM = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD


def libraries(program: Path) -> dict[str, Path]:
    """Return the libraries that this host's loader would map for a program, by their requested names.

    The loader itself is included, by its path. Empty for a static program. Raises PreconditionError for a file that
    is not a program of this machine.
    """
    if not is_dynamic(program):
        return {}
    listed = shell.run(["ldd", str(program)], timeout_seconds=20).stdout
    missing = re.search(r"^\s*(\S+) => not found", listed, re.MULTILINE)
    if missing:
        raise PreconditionError(f"{program} needs {missing[1]}, which is not installed")
    return {found["name"] or found["path"]: Path(found["path"]) for found in _LISTED.finditer(listed)}


def is_dynamic(program: Path) -> bool:
    """Whether a program needs libraries; raises PreconditionError when it is not one."""
    with _opened(program) as elf:
        return any(segment["p_type"] == "PT_INTERP" for segment in elf.iter_segments())


def needed(program: Path) -> tuple[str, ...]:
    """Return the names of the libraries that a program or library itself requests."""
    with _opened(program) as elf:
        section = elf.get_section_by_name(".dynamic")
        tags = section.iter_tags("DT_NEEDED") if isinstance(section, DynamicSection) else ()
        return tuple(str(tag.needed) for tag in tags)  # type: ignore[attr-defined]


def stand_ins(program: Path, kept: Mapping[str, Path]) -> dict[str, bytes]:
    """Return a stub for every library that a program requests and that is not kept."""
    taken, rest = _taken(program)
    for library in kept.values():
        rest -= _defined(library)
    return {
        name: stand_in(name, taken.get(name) or {"": tuple(sorted(rest))})
        for name in needed(program)
        if name not in kept
    }


def _taken(program: Path) -> tuple[dict[str, dict[str, tuple[str, ...]]], set[str]]:
    """Return the symbols that a program imports, by library and version, and those without a version."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    plain: set[str] = set()
    with _opened(program) as elf:
        symbols = elf.get_section_by_name(".dynsym")
        versions, files = elf.get_section_by_name(".gnu.version"), elf.get_section_by_name(".gnu.version_r")
        if not isinstance(versions, GNUVerSymSection) or not isinstance(files, GNUVerNeedSection):
            return found, plain
        if not isinstance(symbols, SymbolTableSection):
            return found, plain
        homes = {
            version["vna_other"]: (library.name, version.name)
            for library, wanted in files.iter_versions()
            for version in wanted
        }
        for symbol, version in zip(symbols.iter_symbols(), versions.iter_symbols(), strict=True):
            if not symbol.name or symbol["st_shndx"] != "SHN_UNDEF" or symbol["st_info"]["bind"] == "STB_WEAK":
                continue
            if version["ndx"] in homes:
                library, name = homes[version["ndx"]]
                versioned = found.setdefault(str(library), {})
                versioned[name] = (*versioned.get(name, ()), symbol.name)
            else:
                plain.add(symbol.name)
    return found, plain


def _defined(library: Path) -> set[str]:
    with _opened(library) as elf:
        section = elf.get_section_by_name(".dynsym")
        symbols = section.iter_symbols() if isinstance(section, SymbolTableSection) else ()
        return {symbol.name for symbol in symbols if symbol.name and symbol["st_shndx"] != "SHN_UNDEF"}


def stand_in(name: str, versions: Mapping[str, tuple[str, ...]]) -> bytes:
    """Write a shared object (ELF64, x86-64) of that name, which defines symbols of these versions as traps.

    The version "" holds symbols without one.
    """
    names = _Names()
    soname = names.place(name)
    symbols, indices = [bytes(_SYMBOL.size)], [0]
    definitions = [_definition(1, name, soname, base=True)]
    marks = []
    for number, (version, words) in enumerate(versions.items(), 2):
        index = number if version else _UNVERSIONED
        if version:
            definitions.append(_definition(index, version, names.place(version)))
        for word in words:
            marks.append((len(symbols), names.place(word)))
            symbols.append(b"")
            indices.append(index)
    count = len(symbols)
    # one bucket: a handful of symbols is looked up once, at the start
    table = struct.pack("<2I", 1, count) + struct.pack("<I", min(1, count - 1))
    table += struct.pack(f"<{count}I", 0, *(number + 1 if number + 1 < count else 0 for number in range(1, count)))
    lengths = (len(table), count * _SYMBOL.size, 2 * count, sum(map(len, definitions)), len(names.text), 16 * 10)
    hash_at, symbols_at, versym_at, verdef_at, names_at, dynamic_at, code_at = _places(lengths)
    for number, place in marks:
        symbols[number] = _SYMBOL.pack(place, _GLOBAL_FUNCTION, 0, 1, code_at, len(_CODE))
    entries = (
        (_DT_SONAME, soname), (_DT_HASH, hash_at), (_DT_STRTAB, names_at), (_DT_SYMTAB, symbols_at),
        (_DT_STRSZ, len(names.text)), (_DT_SYMENT, _SYMBOL.size), (_DT_VERSYM, versym_at),
        (_DT_VERDEF, verdef_at), (_DT_VERDEFNUM, len(definitions)), (0, 0),
    )  # fmt: skip
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    last = definitions.pop()
    chained = [*definitions, last[:_VERDEF_NEXT] + bytes(4) + last[_VERDEF_NEXT + 4 :]]
    size = code_at + len(_CODE)
    body = bytearray(size)
    parts = (
        (0, _header(size, dynamic_at, len(dynamic))), (hash_at, table), (symbols_at, b"".join(symbols)),
        (versym_at, struct.pack(f"<{count}H", *indices)), (verdef_at, b"".join(chained)),
        (names_at, names.text), (dynamic_at, dynamic), (code_at, _CODE),
    )  # fmt: skip
    for at, part in parts:
        body[at : at + len(part)] = part
    return bytes(body)


class _Names:
    """A string table that grows."""

    def __init__(self) -> None:
        self.text = b"\0"

    def place(self, word: str) -> int:
        """Add a word and return where it begins."""
        at = len(self.text)
        self.text += word.encode() + b"\0"
        return at


def _places(lengths: tuple[int, ...]) -> list[int]:
    """Return the offsets of consecutive parts of these lengths, and the end of the last."""
    places = [64 + 2 * 56]
    for length in lengths:
        places.append(-(-(places[-1] + length) // 8) * 8)
    return places


def _definition(index: int, name: str, place: int, *, base: bool = False) -> bytes:
    """Return a version definition (Elf64_Verdef) with its one name (Elf64_Verdaux)."""
    hashed = 0
    for letter in name.encode():
        hashed = (hashed << 4) + letter
        high = hashed & 0xF0000000
        hashed = (hashed ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return struct.pack("<4H3I2I", 1, int(base), index, 1, hashed, 20, 28, place, 0)


def _header(size: int, dynamic_at: int, dynamic_size: int) -> bytes:
    """Return the file's header: one segment, writable since the loader writes addresses into the dynamic section."""
    identity = b"\x7fELF\2\1\1" + bytes(9)
    return (
        struct.pack("<16sHHIQQQIHHHHHH", identity, 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
        + struct.pack("<IIQQQQQQ", 1, 7, 0, 0, 0, size, size, _PAGE)
        + struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, dynamic_at, dynamic_at, dynamic_size, dynamic_size, 8)
    )


def _opened(path: Path) -> ELFFile:
    try:
        return ELFFile.load_from_path(str(path))
    except (OSError, ELFError) as error:
        raise PreconditionError(f"{path} is no program: {error}") from None


KERNEL_PACKAGE = "linux-image-cloud-amd64"
"""The kernel that Debian makes for clouds: small, NVMe built in, virtio as modules. It has no AHCI."""

GENERAL_KERNEL = "linux-image-amd64"
"""The kernel that Debian makes for every machine; it has AHCI, and is ten times as large."""

OWN_KERNEL = "`virtune host guest build --kernel VMLINUZ"

_DOWNLOAD_SECONDS = 600.0
_UNPACK_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The source files of an appliance; `agent` is the QEMU guest agent, None to leave it out."""

    kernel: Path
    modules: Path
    busybox: Path
    fio: Path
    agent: Path | None = None

    @property
    def release(self) -> str:
        """The kernel's release, which is the name of the directory with its modules."""
        return self.modules.name


def find_sources(
    packages: Path,
    *,
    kernel: Path | None = None,
    modules: Path | None = None,
    agent: bool = False,
    package: str = KERNEL_PACKAGE,
) -> Sources:
    """Find all sources, downloading missing ones into `packages`.

    `package` is the distribution's kernel if no other is named. `kernel` is the user's own vmlinuz, `modules` the
    directory of its modules (`/lib/modules/RELEASE`). Raises PreconditionError or MissingToolError with what to do.
    """
    shell.require_x86_64()
    if kernel is None:
        kernel, found = _packaged_kernel(packages, package)
    else:
        kernel, found = _own_kernel(kernel)
    modules = modules or found
    if modules is None or not modules.joinpath("modules.builtin").is_file():
        raise PreconditionError(
            f"the modules of the kernel {kernel} are not at hand",
            hint=f"{OWN_KERNEL} --modules /lib/modules/RELEASE` names them",
        )
    found_agent = None
    if agent:
        installed = shutil.which("qemu-ga", path=os.pathsep.join(("/usr/sbin", "/usr/bin", "/usr/local/bin")))
        packaged = installed or _program_of(packages, "qemu-guest-agent", "usr/sbin/qemu-ga")
        found_agent = Path(packaged)
    return Sources(
        kernel=kernel,
        modules=modules,
        busybox=_busybox(packages),
        fio=Path(shell.find("fio")).resolve(),
        agent=found_agent,
    )


def _own_kernel(kernel: Path) -> tuple[Path, Path | None]:
    if not kernel.is_file():
        raise PreconditionError(f"there is no kernel {kernel}")
    release = kernel.name.removeprefix("vmlinuz-")
    root = kernel.parent.parent  # of an unpacked package, whose modules are below /usr since Debian 13
    places = (root / "lib" / "modules" / release, root / "usr/lib/modules" / release, Path("/lib/modules") / release)
    return kernel.resolve(), next((place for place in places if place.is_dir()), None)


def _packaged_kernel(packages: Path, package: str) -> tuple[Path, Path | None]:
    """Return the newest of the distribution's kernels of this kind that was unpacked before, else download the
    current.
    """
    # `vmlinuz-6.1.0-56-cloud-amd64` is of the flavour `cloud-amd64`, and not of `amd64`
    named = re.compile(rf"vmlinuz-[^-]+(-[0-9.]+)?-{re.escape(package.removeprefix('linux-image-'))}")
    every = packages.glob("linux-image-*/boot/vmlinuz-*")
    unpacked = [path for path in every if named.fullmatch(path.name) and _is_trusted(path)]
    at_hand = sorted(unpacked, key=lambda path: path.parent.parent.stat().st_mtime)
    if not at_hand:
        listed = _apt("apt-cache", ["depends", "--important", package]).stdout.splitlines()
        names = [line.rpartition(" ")[2] for line in listed if "Depends: linux-image-" in line]
        if not names:
            raise PreconditionError(
                f"the package {package} is not known here",
                hint=f"`apt-get update` brings the package lists; {OWN_KERNEL}` takes one of your own",
            )
        at_hand = sorted(_unpacked(packages, names[0]).glob("boot/vmlinuz-*"))
    if not at_hand:
        raise PreconditionError(f"the package {package} holds no kernel")
    return _own_kernel(at_hand[-1])


def _busybox(packages: Path) -> Path:
    installed = shutil.which("busybox")
    if installed is not None and not is_dynamic(Path(installed)):
        return Path(installed).resolve()
    return _program_of(packages, "busybox-static", "bin/busybox", "usr/bin/busybox")


def _program_of(packages: Path, name: str, *places: str) -> Path:
    unpacked = [path for path in packages.glob(f"{name}_*") if _is_trusted(path)]
    at_hand = sorted(unpacked, key=lambda path: path.stat().st_mtime)
    found = at_hand[-1] if at_hand else _unpacked(packages, name)
    for place in places:
        if (found / place).is_file():
            return found / place
    raise PreconditionError(f"the package {name} holds no {Path(places[0]).name}")


def _is_trusted(path: Path) -> bool:
    """Whether nobody but us and root could have changed what was unpacked earlier."""
    return why_exchangeable(path.resolve()) is None


def _unpacked(packages: Path, name: str) -> Path:
    """Download a package and unpack it into a directory named after it, all at once or not at all."""
    packages.mkdir(parents=True, exist_ok=True)
    with warden.filled(packages / f".{name}") as work:
        _apt("apt-get", ["download", "-q", name], place=work)
        archives = list(work.glob("*.deb"))
        if len(archives) != 1:
            raise PreconditionError(f"the package {name} was not downloaded")
        tree = work / "tree"
        shell.run(["dpkg-deb", "-x", str(archives[0]), str(tree)], timeout_seconds=_UNPACK_SECONDS)
        home = packages / archives[0].stem.replace("%3a", ":")
        if not home.exists():
            tree.rename(home)
        return home


def _apt(program: str, words: list[str], *, place: Path | None = None) -> shell.Output:
    """Run the distribution's package client; its error message becomes one sentence."""
    if shutil.which(program) is None or shutil.which("dpkg-deb") is None:
        raise MissingToolError(
            "this host has no `apt-get`, by which virtune gets what its guests are made from",
            hint=f"{OWN_KERNEL}` takes a kernel of your own; busybox (static) must be installed",
        )
    try:
        return shell.run([program, *words], timeout_seconds=_DOWNLOAD_SECONDS, place=place)
    except shell.CommandError as error:
        complaint = next((line for line in error.output.splitlines() if line.startswith("E:")), error.message)
        raise PreconditionError(
            f"`{program} {words[0]}` failed: {complaint.removeprefix('E: ')}",
            hint="`apt-get update` brings the package lists up to date",
        ) from None
