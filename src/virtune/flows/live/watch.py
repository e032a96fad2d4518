# SPDX-License-Identifier: Apache-2.0
"""Look at the running VMs each interval for as long as is wanted: VMs that start are found, rules are judged."""

import contextlib
import json
import queue
import threading
import urllib.request
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from virtune import __version__
from virtune.analyse.layers.path import frame
from virtune.bench.live.emulators import emulators_here
from virtune.flows.live.top import samples, watching
from virtune.model.bottleneck import TopFrame
from virtune.model.errors import MissingToolError, PreconditionError, UsageError
from virtune.model.live import LiveSample
from virtune.model.text import printable

AGAIN_SECONDS = 60.0
"""A VM that could not be looked at is tried again after so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Which VMs are watched, how often, and whether their QEMUs are to keep histograms of latency meanwhile."""

    uri: str | None = None
    sockets: tuple[Path, ...] = ()
    names: tuple[str, ...] = ()
    interval_seconds: float = 10.0
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A sample with what happened since the one before, and for how long monitors were held for it."""

    sample: LiveSample
    frame: TopFrame
    held_seconds: float


def looks(
    asked: Watched,
    *,
    wait: Callable[[float], object],
    now: Callable[[], float],
    tell: Callable[[str], object],
) -> Generator[Look, None, None]:
    """Yield look after look without end; `tell` is given what cannot be seen, once. VMs that start or whose monitor
    was in use are found. Raises PreconditionError where the first look finds none of those that are wanted.
    """
    before: LiveSample | None = None
    told: set[str] = set()
    while True:
        here, opened = _running(asked), now()
        try:
            with watching(asked.uri, asked.sockets, names=asked.names, keep=asked.keep) as watch:
                for sample in samples(watch, interval_seconds=asked.interval_seconds, wait=wait, now=now):
                    if before is None:
                        _require(asked, sample)
                    found = None if before is None else frame(before, sample)
                    before = sample
                    if found is not None:
                        missing = {line for line in found.missing if line not in told}
                        told.update(missing)
                        for line in sorted(missing):
                            tell(f"not seen: {line}")
                        yield Look(sample=sample, frame=found, held_seconds=watch.held_seconds)
                    lost = any(one.failed for one in sample.vms) or len(sample.vms) < len(asked.sockets)
                    if _running(asked) != here or (lost and now() - opened >= AGAIN_SECONDS):
                        break
        except (PreconditionError, MissingToolError) as error:
            if before is None:
                raise
            if error.message not in told:
                told.add(error.message)
                tell(error.message)
            before = replace(before, counts={}, vms=())
            wait(asked.interval_seconds)


def _require(asked: Watched, sample: LiveSample) -> None:
    if asked.names and not sample.vms:
        raise PreconditionError(f"no running VM is called {' or '.join(asked.names)}")


def _running(asked: Watched) -> object:
    """Return what changes when QEMUs come and go, where they are searched."""
    return None if asked.sockets or asked.uri is not None else emulators_here()


POST_SECONDS = 5.0
"""How long the receiver of an event may take for each step, and all together when the watch ends."""

_WAITING_MAX = 100


class Webhook:
    """Posts documents to an address in a thread of its own: one that hangs or fails is told of, and stops nothing.
    Use as a context manager. Raises UsageError for an address that is not of the web.
    """

    def __init__(self, url: str, tell: Callable[[str], object]) -> None:
        try:
            parts = urlsplit(url)
            self._host = printable(parts.hostname or "", most=100)
            usable = parts.scheme in ("http", "https") and bool(self._host) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise UsageError("--webhook is an address such as https://HOST/PATH")
        self._url, self._tell = url, tell  # it may hold a secret: it is never said whole
        self._waiting: queue.Queue[Mapping[str, Any] | None] = queue.Queue(_WAITING_MAX)
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(POST_SECONDS)

    def post(self, document: Mapping[str, Any]) -> None:
        """Send a document when those before it are sent."""
        try:
            self._waiting.put_nowait(document)
        except queue.Full:
            self._tell(f"webhook: {self._host} takes nothing, and {_WAITING_MAX} events wait: one is left out")

    def _run(self) -> None:
        while (document := self._waiting.get()) is not None:
            head = {"Content-Type": "application/json", "User-Agent": f"virtune/{__version__}"}
            try:
                request = urllib.request.Request(self._url, json.dumps(document).encode(), head)  # noqa: S310 - checked
                urllib.request.urlopen(request, timeout=POST_SECONDS).close()  # noqa: S310 - the same
            except Exception as error:  # noqa: BLE001 - what a server says wrongly has many forms in http.client
                why = printable(str(getattr(error, "reason", error) or type(error).__name__), most=100)
                self._tell(f"webhook: {self._host} did not take an event: {why}")
