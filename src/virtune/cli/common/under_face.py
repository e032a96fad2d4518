# SPDX-License-Identifier: Apache-2.0
"""What takes long, run under a progress display, with how far it is kept for the local page."""

import contextlib
import signal
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from virtune.cli.common.carried_study import CarriedStudy, carried_now
from virtune.cli.common.progress import Face
from virtune.cli.common.progress_file import Recorded
from virtune.model.errors import Interrupted, LoadError, NotInForceError, StoreError
from virtune.model.event import Event, StudyPlanned
from virtune.model.study import Study
from virtune.store.progress import runs_already
from virtune.store.store import Store

Found = TypeVar("Found")
Answer = TypeVar("Answer")


def under_face(
    face: Face,
    work: Callable[[Callable[[Event], None]], Found],
    so_far: Callable[[], Found | None],
    show: Callable[[Found], Answer],
    *,
    store: Store,
    study: Study,
) -> Answer:
    """Run what takes long under a face, then show what it found; when it is interrupted, what there is of it."""
    signal.signal(signal.SIGTERM, interrupt)
    recorded, carried = Recorded(face, store=store.place, study=study), carried_now()
    if carried is not None:
        carried.begin(study.id)
    try:
        # the file tells of runs on this host, the claim of those of other hosts in one database
        with recorded as say, store.claimed(f"run {study.id}") as alone, face:
            if not alone:
                raise runs_already(study.id)
            found = work(_heard(say, carried))
    except (Interrupted, LoadError, NotInForceError):
        with contextlib.suppress(StoreError):  # it ended before it was kept: then there is nothing of it to show
            part = so_far()
            if part is not None:
                show(part)
        raise
    finally:
        if carried is not None:
            carried.run = recorded.run
    return show(found)


def _heard(say: Callable[[Event], None], carried: CarriedStudy | None) -> Callable[[Event], None]:
    """Return what also tells whoever carries a study how long it is expected to take."""
    if carried is None:
        return say

    def heard(event: Event) -> None:
        say(event)
        if isinstance(event, StudyPlanned):
            carried.planned(event.seconds)

    return heard


def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signal's own words
    """Take a request to end as Ctrl-C: what is finished is kept and everything comes down."""
    raise KeyboardInterrupt
