# SPDX-License-Identifier: Apache-2.0
"""Images in a Ceph cluster, for arms whose disk is QEMU's own rbd driver: made from the scratch image, removed after
the run. Nothing else in the pool is read or written.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from virtune import shell
from virtune.bench.filesystem import patience_of
from virtune.bench.scratch import Scratch
from virtune.model.errors import PreconditionError
from virtune.model.event import Event, StepEnded, StepStarted
from virtune.model.rbd import RbdPlace, rbd_place
from virtune.model.stack import Disk, Stack
from virtune.shell import Warden

PROGRAM = "rbd"


@contextlib.contextmanager
def rbd_images(
    stacks: Iterable[Stack], scratch: Scratch, warden: Warden, say: Callable[[Event], None]
) -> Iterator[Mapping[str, str]]:
    """Yield the image in each pool that the stacks ask for, by the text that names the pool, filled with what the
    scratch image holds.

    Raises PreconditionError with Ceph's words when one cannot be made.
    """
    texts = dict.fromkeys(one.disk.rbd for one in stacks if one.disk.backend == "rbd" and one.disk.rbd is not None)
    name = warden.directory.name
    with contextlib.ExitStack() as ends:
        for text in texts:
            place = rbd_place(text)
            what = f"making the image {place.path}/{name} in Ceph"
            say(StepStarted(what=what))
            plain = scratch.image_for(Disk(), warden)
            ends.callback(_remove, place, name, scratch.span_bytes)
            _rbd(place, "import", str(plain), f"{place.path}/{name}", span_bytes=scratch.span_bytes)
            say(StepEnded(what=what))
        yield dict.fromkeys(texts, name)


def _remove(place: RbdPlace, name: str, span_bytes: int) -> None:
    """Remove an image that was made; what cannot be removed any more is not worth the result."""
    with contextlib.suppress(PreconditionError):
        _rbd(place, "rm", f"{place.path}/{name}", span_bytes=span_bytes)


def _rbd(place: RbdPlace, verb: str, *words: str, span_bytes: int) -> None:
    who = [] if place.user is None else ["--id", place.user]
    where = [] if place.conf is None else ["--conf", place.conf]
    command = [shell.find(PROGRAM), *where, *who, verb, "--no-progress", *words]
    try:
        shell.run(command, timeout_seconds=patience_of(span_bytes))
    except shell.CommandError as error:
        hint = error.hint or "`rbd ls POOL` must work for the user who runs virtune"
        raise PreconditionError(
            f"Ceph does not do `rbd {verb}` in {place.path}: {error.message}", hint=hint
        ) from None
