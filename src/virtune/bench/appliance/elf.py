# SPDX-License-Identifier: Apache-2.0
"""Programs for the appliance: find a program's libraries, and make stubs for those that a guest never calls.

A distribution's fio is linked against many storage systems (Ceph, Gluster, RDMA, ...): 90 MB of libraries that the
loader needs at fio's start, and that no load on a guest's disk calls. Each of them is replaced by a shared object of
a few hundred bytes that defines the symbols which fio imports from it as traps. fio itself is unchanged, so that host
and guest run the same program.
"""

import re
import struct
from collections.abc import Mapping
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

from virtune import shell
from virtune.model.errors import PreconditionError

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
