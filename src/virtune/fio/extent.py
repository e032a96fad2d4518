# SPDX-License-Identifier: Apache-2.0
"""The extent of a load: the bytes of the target that it may access, and none beyond."""

import re

from virtune.model.errors import PlanError, PreconditionError
from virtune.model.target import Target
from virtune.model.units import format_bytes, parse_bytes

_PAGE = 4096


def extent_of(options: dict[str, str], target: Target) -> dict[str, str]:
    """Return the first byte and the size that each clone touches; refuse an extent beyond the target or smaller than
    a block.
    """
    whole = target.size_bytes
    first, step = _share(options.get("offset", "0"), whole), _share(options.get("offset_increment", "0"), whole)
    last = first + step * (int(options.get("numjobs", "1")) - 1)
    size = _share(options["size"], whole) if "size" in options else whole - last
    block = _largest_block(options)
    if size < block or last + size > whole:
        need = format_bytes(last + max(size, block))
        raise PreconditionError(
            f"the workload needs {need}, and the target has {format_bytes(whole)}",
            hint="a larger --span, or smaller size=",
        )
    found = {"offset": str(first)} if "offset" in options else {}
    found |= {"offset_increment": str(step)} if "offset_increment" in options else {}
    return found | {"size": str(size)}


def _share(text: str, whole: int) -> int:
    """Read a size, or a share of the whole such as `50%`, the latter on a page boundary."""
    if text.endswith("%"):
        return whole * int(text[:-1]) // 100 // _PAGE * _PAGE
    return parse_bytes(text)


def _largest_block(options: dict[str, str]) -> int:
    sizes = [parse_bytes(size) for size in re.split("[,-]", options.get("bsrange", options.get("bs", "4k")))]
    sizes += [parse_bytes(part.partition("/")[0]) for part in re.split("[,:]", options.get("bssplit", "")) if part]
    return max(sizes)


def own_extent(options: dict[str, str], target: Target) -> None:
    """Refuse an extent that may leave the target: a share is one of the real size, which only fio sees."""
    shares = [key for key in ("size", "offset", "offset_increment") if options.get(key, "").endswith("%")]
    if shares:
        hint = "write it in bytes, or leave size out: the whole target is the default"
        raise PlanError(f"the job file says {shares[0]}={options[shares[0]]}, a share of what fio finds", hint=hint)
    if "size" not in options and {"offset", "offset_increment"} & options.keys():
        raise PlanError(
            "the job file says offset without size", hint="write size= as well, so that it ends on the target"
        )
    extent_of(options, target)
