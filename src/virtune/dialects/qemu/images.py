# SPDX-License-Identifier: Apache-2.0
"""Disk images in QEMU's words: the files that one is made of, and the `qemu-img` lines that make it.

The files beside an image have its name with a word behind it, so that whoever knows the image and its disk knows
them: `disk-layer1.qcow2` is the image below `disk.qcow2`, and so on down to the base; `disk-data.raw` is its external
data file, `disk.key` the passphrase of an encrypted one.
"""

import shlex
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, TypeVar

from virtune.model.stack import Disk, Stack
from virtune.model.text import setting_text

KEY = "key0"
"""The secret with the passphrase of an encrypted image."""

P = TypeVar("P", bound=PurePath)


def chain_of(disk: Disk, image: P) -> tuple[P, ...]:
    """Return the images below an image, the nearest first, the base last."""
    numbers = range(1, (disk.backing_depth or 0) + 1)
    return tuple(image.with_name(f"{image.stem}-layer{number}{image.suffix}") for number in numbers)


def data_file_of(disk: Disk, image: P) -> P | None:
    """Return the external data file of an image, None for one that holds its data itself."""
    return image.with_name(f"{image.stem}-data.raw") if disk.data_file else None


def key_of(disk: Disk, image: P) -> P | None:
    """Return the file with the passphrase of an image, None for one that is not encrypted."""
    return image.with_suffix(".key") if disk.encryption == "luks" else None


def files_of(disk: Disk, image: P) -> tuple[P, ...]:
    """Return all files in which an image has its data and metadata, itself first."""
    data = data_file_of(disk, image)
    return (image, *chain_of(disk, image), *(() if data is None else (data,)))


def qcow2_options(disk: Disk) -> dict[str, str]:
    """Return the options of `qemu-img` for the layout of one qcow2 file."""
    names = ("cluster_size", "extended_l2", "lazy_refcounts", "preallocation")
    asked = ((name, getattr(disk, name)) for name in names)
    return {name: setting_text(one) for name, one in asked if one is not None}


def escaped(path: PurePath) -> str:
    """Write a path as a value among QEMU's options, which a comma ends."""
    return str(path).replace(",", ",,")


def secret_words(disk: Disk, image: PurePath) -> tuple[str, ...]:
    """Return the option by which `qemu-img` reads an image's passphrase, which is never on a command line itself."""
    key = key_of(disk, image)
    return () if key is None else ("--object", f"secret,id={KEY},file={escaped(key)}")


def luks_options(disk: Disk) -> dict[str, str]:
    """Return the options of `qemu-img` for the encryption of an image."""
    return {"encrypt.format": "luks", "encrypt.key-secret": KEY} if disk.encryption == "luks" else {}


def image_node(disk: Disk, image: PurePath) -> Mapping[str, Any]:
    """Return an image as `qemu-img` is told of it where its name alone would not open it."""
    node: dict[str, Any] = {"driver": disk.format, "file": {"driver": "file", "filename": str(image)}}
    if (data := data_file_of(disk, image)) is not None:
        node["data-file"] = {"driver": "file", "filename": str(data)}
    if disk.encryption == "luks":
        node["encrypt"] = {"format": "luks", "key-secret": KEY}
    return node


def create_commands(
    disk: Disk, image: PurePath, size_bytes: int, more: Mapping[str, str] | None = None
) -> tuple[tuple[str, ...], ...]:
    """Return the `qemu-img` commands that make an empty image of a disk's layout, the base of its chain first; `more`
    are further options.

    Images name the one below by its file name alone, so that the directory of all may be moved.
    """
    made = (image, *chain_of(disk, image))
    commands = []
    for number, path in reversed(list(enumerate(made))):
        options = qcow2_options(disk) | luks_options(disk) | dict(more or {})
        if (data := data_file_of(disk, image)) is not None:
            options |= {"preallocation": "metadata", "data_file": escaped(data), "data_file_raw": "on"}
        told = ",".join(f"{name}={value}" for name, value in options.items())
        words = ["qemu-img", "create", *secret_words(disk, image), "-f", disk.format, *(["-o", told] if told else [])]
        words += ["-b", made[number + 1].name, "-F", disk.format] if number + 1 < len(made) else []
        commands.append((*words, str(path), str(size_bytes)))
    return tuple(commands)


def overlay_words(disk: Disk, image: PurePath, overlay: PurePath) -> tuple[str, ...]:
    """Return the `qemu-img` command that writes an empty qcow2 above a disk's image, as a snapshot begins."""
    return ("qemu-img", "create", "-q", "-f", "qcow2", "-F", disk.format, "-b", str(image), str(overlay))


def image_line(stack: Stack, *, image: str, size_bytes: int) -> str | None:
    """Return the `qemu-img` line that makes an image with the stack's layout, one for each image of a chain; None for
    an image that needs none.
    """
    disk = stack.disk
    if disk.backend != "file" or (disk.format == "raw" and disk.preallocation is None):
        return None
    return "\n".join(map(shlex.join, create_commands(disk, PurePath(image), size_bytes)))
