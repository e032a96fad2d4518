# SPDX-License-Identifier: Apache-2.0
"""The rig `metal`: the load runs directly on a file or block device, as the reference for other stacks."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from virtune.bench.load import HereLoad, Loaded, run_loads
from virtune.bench.port import DiskImageSpec, Keep, LoadJob, LoadOutput, Surroundings, Window
from virtune.bounded import opened
from virtune.fio.job import can_name
from virtune.model.errors import RigError
from virtune.model.stack import FileTarget, Stack
from virtune.shell import Warden


@dataclass(kw_only=True)
class MetalBench(Loaded):
    """A file or device, with nothing between the load and the kernel."""

    warden: Warden

    def run(self, jobs: Sequence[LoadJob], window: Window, keep: Keep) -> LoadOutput:
        return run_loads([HereLoad(self, jobs[0], self.warden)], window, keep)


class MetalSession:
    """A session without processes or state."""

    def __init__(self, warden: Warden) -> None:
        self._warden = warden

    @contextlib.contextmanager
    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> Iterator[MetalBench]:  # noqa: ARG002
        """Yield the image itself as target."""
        if ground.image is None:
            raise RigError("rig=metal needs an image or a device")
        with contextlib.ExitStack() as names:
            path, *more = (
                names.enter_context(_named(image)) for image in (ground.image, *ground.further) if image is not None
            )
            target = FileTarget(
                path=path,
                size_bytes=ground.size_bytes,
                more=tuple(more),
                keeps_cache=stack.cache_state != "cold",
            )
            yield MetalBench(target=target, image=ground.image, warden=self._warden, stack=stack)


@contextlib.contextmanager
def _named(image: Path) -> Iterator[str]:
    """Yield a path of the image that a job file can express: its own, or else /proc's path of our descriptor."""
    if can_name(str(image)):
        yield str(image)
        return
    with contextlib.ExitStack() as ends:
        try:
            descriptor = ends.enter_context(opened(image, os.O_PATH))
        except OSError as error:
            raise RigError(f"cannot use {image}: {error.strerror}") from None
        yield f"/proc/{os.getpid()}/fd/{descriptor}"


def session(stack: Stack, place: Surroundings) -> AbstractContextManager[MetalSession]:  # noqa: ARG001 - as for all
    """Return the rig, which needs no preparation."""
    return contextlib.nullcontext(MetalSession(place.warden))
