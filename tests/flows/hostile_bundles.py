# SPDX-License-Identifier: Apache-2.0
"""Bundles that would take all of a machine's memory or time, each kind with chance."""

import contextlib
import gc
import hashlib
import io
import json
import random
import re
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.store.at_once import changed

MIB = 1024**2
GROWTH_MAX = 200 * MIB
"""What a bundle may take beyond what a process has anyway; Python and what virtune imports have some 80 MiB."""


def zipped(members: Iterable[tuple[str, bytes]], *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", method, compresslevel=9) as new:
        warnings.simplefilter("ignore")  # two members of one name
        for name, content in members:
            new.writestr(f"x/{name}", content)
    return file.getvalue()


def rows_of_zip(good: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(good)) as one:
        found: dict[str, Any] = json.loads(
            next(one.read(name) for name in one.namelist() if name.endswith("/study.json"))
        )
    return found


def named(good: bytes, members: Sequence[str], size: int) -> bytes:
    """The rows of a study whose first attempt names these members, each of so many zeros."""
    rows, digest = rows_of_zip(good), hashlib.sha256(bytes(size)).hexdigest()
    captures = [{"name": f"c{number}", "file": name, "sha256": digest} for number, name in enumerate(members)]
    attempts = [rows["attempts"][0] | {"captures": captures}]
    return json.dumps(rows | {"attempts": attempts}).encode()


def filled(good: bytes, key: str, text: str) -> bytes:
    """The rows of a study with other text as one of their values."""
    rows = json.dumps(rows_of_zip(good) | {key: "HERE"})
    return rows.replace('"HERE"', text).encode()


def repeated(text: str, size: int) -> str:
    """A list with a text again and again, of so many bytes at most."""
    return f"[{','.join([text] * (size // (len(text) + 1)))}]"


def one_for_all(content: bytes, count: int) -> bytes:
    """A ZIP whose directory names its first member so often, under other names."""
    begin = content.rindex(b"PK\x05\x06")
    start = struct.unpack_from("<L", content, begin + 16)[0]
    entry = content[start : start + 46 + struct.unpack_from("<H", content, start + 28)[0]]
    many = b"".join(entry[:-4] + f"{number:04}".encode() for number in range(count))
    rest = content[start + len(entry) : begin]
    directory = many + rest
    end = bytearray(content[begin:])
    struct.pack_into("<HHLL", end, 8, (count + 1) % 65536, (count + 1) % 65536, len(directory), start)
    return content[:start] + directory + bytes(end)


def claims(content: bytes, length: int) -> bytes:
    """A ZIP that says so of the length of its directory."""
    return content[:-10] + struct.pack("<L", length) + content[-6:]


Hostile = Callable[[bytes, random.Random], bytes]


def of_zeros(good: bytes, chance: random.Random) -> bytes:
    size, names = chance.randrange(8, 40) * MIB, [f"m{number}" for number in range(chance.randrange(2, 20))]
    return zipped([("study.json", named(good, names, size)), *((name, bytes(size)) for name in names[:2])])


def one_named_often(good: bytes, chance: random.Random) -> bytes:
    size = chance.randrange(1, 8) * MIB
    rows = named(good, ["m"] * chance.randrange(2, 2000), size)
    return zipped([("study.json", rows), ("m", bytes(size))])


def overlapping(good: bytes, chance: random.Random) -> bytes:
    size, count = 8 * MIB, chance.randrange(4, 60)
    rows = named(good, [f"m-{number:04}" for number in range(count)], size)
    return one_for_all(zipped([("m-0000", bytes(size)), ("study.json", rows)]), count)


def otherwise_packed(good: bytes, chance: random.Random) -> bytes:
    size = 60 * MIB
    members = [("study.json", named(good, ["m"], size)), ("m", bytes(size))]
    return zipped(members, method=chance.choice([zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]))


def of_small_values(good: bytes, chance: random.Random) -> bytes:
    text = chance.choice(["[]", "{}", '{"":0}', "[[]]", '"ab"', "1.5", "12345", "null", '{"a":{}}'])
    key = chance.choice(["study", "facts", "attempts", "finished"])
    return zipped([("study.json", filled(good, key, repeated(text, chance.randrange(4, 26) * MIB)))])


def of_long_text(good: bytes, chance: random.Random) -> bytes:
    text = chance.choice([" ", "x", "\U0001f600", "\\\\"]) * (chance.randrange(4, 20) * MIB // 4)
    return zipped([("study.json", filled(good, chance.choice(["study", "facts", "finished"]), f'"{text}"'))])


def of_depth(good: bytes, chance: random.Random) -> bytes:
    begin = chance.choice(["[", '{"a":'])
    key = chance.choice(["study", "facts", "attempts"])
    return zipped([("study.json", filled(good, key, begin * chance.randrange(900, 500_000)))])


def of_many_members(good: bytes, chance: random.Random) -> bytes:
    return one_for_all(
        zipped([("m-0000", b""), ("study.json", named(good, [], 0))]), chance.randrange(210_000, 400_000)
    )


def that_lies(good: bytes, chance: random.Random) -> bytes:
    return claims(zipped([("study.json", named(good, [], 0))]), chance.choice([2**32 - 1, 2**31, 25 * MIB]))


def of_odd_numbers(good: bytes, chance: random.Random) -> bytes:
    rows = rows_of_zip(good)
    record = rows["attempts"][0]["record"]
    where = chance.choice(["number", "round", "attempt", "method"])
    odd = chance.choice([-1 if where == "method" else 0, -1, 2**31, 2**63, 10**400])
    {"attempt": record, "method": record["measurement"]}.get(where, record["trial"])[where] = odd
    return changed(good, "/study.json", json.dumps(rows).encode())


def with_one_twice(good: bytes, chance: random.Random) -> bytes:
    rows = rows_of_zip(good)
    if chance.random() < 0.5:
        rows["attempts"].append(rows["attempts"][0] | {"captures": []})
    else:
        captures = rows["attempts"][0]["captures"]
        captures[1]["name"] = captures[0]["name"]
    return changed(good, "/study.json", json.dumps(rows).encode())


def memory(key: str) -> int:
    return int(re.search(rf"^{key}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)[1]) * 1024  # type: ignore[index]


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forget the most memory that was had so far
    before = memory("VmHWM")
    yield
    assert memory("VmHWM") - before < GROWTH_MAX


KINDS = (of_zeros, one_named_often, overlapping, otherwise_packed, of_small_values, of_long_text, of_depth,
         of_many_members, that_lies, of_odd_numbers, with_one_twice)  # fmt: skip
