# SPDX-License-Identifier: Apache-2.0
"""What of a study's images is read once before its first trial: all that trials load and that this run did not just
write.
"""

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from virtune.bench.cache_state import read_once
from virtune.flows.run.trial import Tools
from virtune.model.event import Event, Noticed, StepEnded, StepProgressed, StepStarted
from virtune.model.stack import Stack
from virtune.model.study import FirstRead, Study
from virtune.model.text import format_bytes, format_seconds
from virtune.plan.trials import first_read_seconds_max

_TOLD_SECONDS = 2.0
"""What is over sooner is not announced."""

_GUESSED_SECONDS = 0.4
"""After so long it is known how fast a disk reads, so that what is left can be told."""


def read_first(study: Study, images: Iterable[Path], tools: Tools, say: Callable[[Event], None]) -> FirstRead | None:
    """Read the images of a study; returns what was read, None where nothing was to be read.

    An arm that measures caches as they are found asks for what lies below this host as well, so nothing is read then.
    What this run wrote is not read: it is as fast as later at once.
    """
    sizes = _parts(study, images, tools)
    if not sizes:
        return None
    if not reads_first(study):
        why = "an arm measures caches as they are found (host.cache=as-found)"
        return FirstRead(images=len(sizes), size_bytes=sum(sizes.values()), read_bytes=0, seconds=0.0, why=why)
    limit = first_read_seconds_max(study)
    shown = ReadingProgress(sum(sizes.values()), limit, say)
    found = read_once(sizes, limit_seconds=limit, heard=shown.heard)
    shown.end()
    if found.why and found.read_bytes:
        came = f"{format_bytes(found.read_bytes)} of {format_bytes(found.size_bytes)}"
        text = f"{came} were read before the first trial, then {found.why}; first rounds may be slower than later"
        say(Noticed(text=text))
    return found


def reads_first(study: Study) -> bool:
    """Whether the images of a study are read before its first trial."""
    if study.connect is not None or study.simulated:
        return False
    return all(arm.stack.cache_state != "as-found" for arm in study.arms)


def _parts(study: Study, images: Iterable[Path], tools: Tools) -> dict[Path, int]:
    """Return how much is loaded of each image that this run did not write, by the path that leads to it."""
    made = tools.scratch.made.union(*(one.made for one in tools.spread.values()))
    held = tools.target
    parts: dict[Path, int] = {}
    for image in images:
        if held is not None and str(image) == study.target:
            if any(_loads_target(arm.stack) for arm in study.arms):
                parts[held.path] = held.size_bytes
        elif image not in made:
            with contextlib.suppress(OSError):  # an image that somebody removed is the business of its trials
                parts[image] = image.stat().st_size
    return parts


def _loads_target(stack: Stack) -> bool:
    """Whether a stack loads the study's target through this host; a drive that a guest drives itself is not read."""
    return stack.place == "target" and stack.device.vfio_pci is None and stack.disk.backend not in ("null-co", "rbd")


class ReadingProgress:
    """Announces a reading that takes long, with the time that is left."""

    def __init__(self, size_bytes: int, limit_seconds: float, say: Callable[[Event], None]) -> None:
        self._say, self._limit = say, limit_seconds
        self._what = f"reading {format_bytes(size_bytes)} of disk once (at most {format_seconds(limit_seconds)})"
        self._begun = False

    def heard(self, share: float, seconds: float) -> None:
        """Show how far it is."""
        left = self._limit - seconds
        if share > 0:
            left = min(left, seconds * (1 - share) / share)
        if not self._begun and seconds >= _GUESSED_SECONDS and seconds + left > _TOLD_SECONDS:
            self._begun = True
            self._say(StepStarted(what=self._what))
        if self._begun:
            done = seconds / max(seconds + left, 0.001)
            self._say(StepProgressed(what=self._what, fraction=min(1.0, done), seconds_left=max(0.0, left)))

    def end(self) -> None:
        """Show that it is over, if it was shown."""
        if self._begun:
            self._say(StepEnded(what=self._what))
