# SPDX-License-Identifier: Apache-2.0
"""How much of a trial's images is in this host's page cache when it begins."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from virtune.bench.scratch import drop_cache
from virtune.model.errors import RigError
from virtune.model.evidence import Check
from virtune.model.facts import Unknown
from virtune.model.stack import CacheState
from virtune.model.units import format_bytes
from virtune.probe.residency import cachestat

_CHUNK_BYTES = 1024 * 1024

WARM, COLD = 0.95, 0.02
"""The shares of an image from which on it counts as cached, and below which as not cached: a filesystem keeps a few
pages at the ends of what was read."""


def set_cache(images: Iterable[Path], state: CacheState) -> None:
    """Drop the images from the page cache, read them into it, or leave them as they are. Raises RigError for an image
    that cannot be read.
    """
    for image in images:
        if state == "cold":
            drop_cache(image)
        elif state == "warm":
            _read(image)


def cache_state_checks(images: Sequence[Path], state: CacheState) -> tuple[Check, ...]:
    """Check how much of the images is cached now; nothing for the default, which needs no request, and without
    images.
    """
    if state == "cold" or not images:
        return ()
    cached = size = 0
    for image in images:
        found = cachestat(image)
        if isinstance(found, Unknown):
            return (_check(state, None, found.because, hidden=True),)
        cached, size = cached + found.cached_bytes, size + _size(image)
    share = cached / size if size else 0.0
    proof = f"cachestat: {format_bytes(cached)} of {format_bytes(size)} are in the page cache"
    seen = state if state == "as-found" or share >= WARM else "cold" if share <= COLD else "partly cached"
    return (_check(state, seen, proof),)


def _check(asked: str, found: str | None, proof: str, *, hidden: bool = False) -> Check:
    return Check(setting="host.cache", asked=asked, found=found, proof=proof, hidden=hidden)


def _size(image: Path) -> int:
    with image.open("rb") as file:
        return file.seek(0, os.SEEK_END)


def _read(image: Path) -> None:
    """Read a whole file, so that it is in the page cache if there is memory for it."""
    try:
        with image.open("rb", buffering=0) as file:
            while file.read(_CHUNK_BYTES):
                pass
    except OSError as error:
        raise RigError(f"cannot read {image} into the page cache: {error.strerror}") from None
