# SPDX-License-Identifier: Apache-2.0
"""Read the command line of a running QEMU: the images that it opened, and how (pure).

Since libvirt 5.10 disks are `-blockdev` in JSON. What was plugged in later is not on the command line.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_DRIVERS = ("file", "host_device")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedImage:
    """How one image was opened; None is QEMU's default."""

    filename: str
    aio: str | None
    direct: bool | None
    no_flush: bool | None


def disks_of_argv(argv: Sequence[str]) -> dict[str, OpenedImage]:
    """Return the images of a command line by their file names; what is not understood is left out."""
    found = {}
    for flag, value in itertools.pairwise(argv):
        if flag not in ("-blockdev", "--blockdev") or not value.startswith("{"):
            continue
        try:
            node = json.loads(value)
        except (ValueError, RecursionError):
            continue
        image = _image(node)
        if image is not None:
            found[image.filename] = image
    return found


def _image(node: object) -> OpenedImage | None:
    if not isinstance(node, Mapping) or node.get("driver") not in _DRIVERS:
        return None
    name, cache, aio = node.get("filename"), node.get("cache"), node.get("aio")
    cache = cache if isinstance(cache, Mapping) else {}
    if not isinstance(name, str):
        return None
    return OpenedImage(
        filename=name,
        aio=aio if isinstance(aio, str) else None,
        direct=_flag(cache.get("direct")),
        no_flush=_flag(cache.get("no-flush")),
    )


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None
