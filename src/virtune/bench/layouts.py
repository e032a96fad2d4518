# SPDX-License-Identifier: Apache-2.0
"""The files of a scratch image in qcow2: what each holds, and how it gets it."""

import os
import secrets
from pathlib import Path

from virtune.bounded import opened
from virtune.dialects.qemu.images import chain_of, data_file_of, key_of, luks_options
from virtune.model.stack import Disk

_PIECE_BYTES = 64 * 1024


def contents(disk: Disk, image: Path, size: int, span: int) -> dict[Path, int]:
    """Return the files of a qcow2 image, in the order in which they are made, with the bytes of data that each holds
    at least.

    The base of a chain has all data, each image between it and the measured one an equal share, piece by piece in
    turn, and the measured one nothing.
    """
    chain, data, key = chain_of(disk, image), data_file_of(disk, image), key_of(disk, image)
    piece, unwritten = piece_bytes(disk), size - span
    found = dict[Path, int]()
    for number, layer in reversed(list(enumerate(chain, 1))):
        share = len(range(number, size // piece, len(chain))) * piece
        found[layer] = span if number == len(chain) else max(0, share - unwritten)
    found |= {} if data is None else {data: size}
    found |= {} if key is None else {key: 0}
    return found | {image: 0 if chain or data is not None else span}


def piece_bytes(disk: Disk) -> int:
    """Return the unit in which data is spread over a chain: a cluster, and no less than 64 KiB."""
    return max(_PIECE_BYTES, disk.cluster_size or 0)


def copy_pieces(raw: Path, _: Path, file: int, *, first: int = 0, of: int = 1, piece: int = _PIECE_BYTES) -> None:
    """Copy every so many-th piece of a raw image into a file of the same size; the copy shares no blocks with it."""
    with opened(raw, os.O_RDONLY) as source:
        size = os.fstat(source).st_size
        os.ftruncate(file, size)
        for begin in range(first * piece, size, of * piece):
            at, end = begin, min(size, begin + piece)
            os.lseek(file, at, os.SEEK_SET)
            while at < end:
                at += os.sendfile(file, source, at, end - at)
    os.fsync(file)


def write_key(_: Path, file: int) -> None:
    """Write a random passphrase into an open file."""
    os.write(file, secrets.token_hex(_KEY_BYTES).encode())


_KEY_BYTES = 32
_ITER_MS = "10"
"""QEMU takes 2 s to make the passphrase of an encrypted image slow to guess, and as long to open it. Nobody guesses
that of a scratch image, and no I/O is slower or faster for it.
"""


def luks_words(disk: Disk) -> dict[str, str]:
    """Return the options of `qemu-img` for the encryption of a scratch image."""
    return luks_options(disk) | ({"encrypt.iter-time": _ITER_MS} if disk.encryption == "luks" else {})
