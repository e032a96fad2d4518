# SPDX-License-Identifier: Apache-2.0
"""The additional scratch directories over which the guests' images are spread."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from virtune.bench.scratch import Scratch
from virtune.model.errors import PreconditionError, RefusedTargetError
from virtune.model.event import Event
from virtune.model.study import Study


@contextlib.contextmanager
def spread_images(study: Study, say: Callable[[Event], None]) -> Iterator[dict[str, Scratch]]:
    """Yield the scratch directories that guests are spread over besides the study's own, by name.

    Two names of the same directory count once. Raises PreconditionError for the study's own directory.
    """
    places = sorted({arm.stack.spread for arm in study.arms if arm.stack.spread is not None})
    if places and study.target is not None:
        raise RefusedTargetError("guests are spread over scratch images, not over a target of your own and another")
    meant = {place: Path(place).resolve() for place in places}
    if Path(study.scratch).resolve() in meant.values():
        said = f"guests.spread names the scratch directory itself, {study.scratch}, so it spreads nothing"
        raise PreconditionError(said, hint="name a directory on another disk")
    with contextlib.ExitStack() as ends:
        made = {p: ends.enter_context(Scratch(p, span_bytes=study.span_bytes, say=say)) for p in {*meant.values()}}
        yield {place: made[path] for place, path in meant.items()}
