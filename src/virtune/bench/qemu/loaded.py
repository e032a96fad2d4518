# SPDX-License-Identifier: Apache-2.0
"""The common parts of loads in guests with and without Linux: the counters, the evidence, the watch."""

import contextlib
import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from virtune.bench.guest.channel import GuestError
from virtune.bench.live.rings import RingReader, TrialRings
from virtune.bench.load import NOTHING_DONE, STUCK, TICK_SECONDS, Progress
from virtune.bench.port import HostCounters, Keep, LoadJob
from virtune.bench.qemu.machine import QemuGuest, console_end
from virtune.bench.verify import Spent
from virtune.dialects.qemu.guest import DEVICE
from virtune.model.errors import LoadError, RigError
from virtune.model.evidence import RINGS, Check, of_guest
from virtune.model.facts import BusyFacts, Unknown
from virtune.probe.host import busy_facts
from virtune.shell import last_line

_LOOK_SECONDS = 1.0
"""The interval of checks whether a guest's disk completes any request."""


_BUSY_PERCENT = 50.0
"""On a host that is less busy no thread waits for 15 s."""


class Loaded(Protocol):
    """A guest with the disk of a stack, as far as its load needs it."""

    seen: Mapping[str, str]
    processes: Mapping[str, int]
    image: Path | None

    @property
    def vm(self) -> QemuGuest:
        """The guest."""
        ...

    @property
    def counted(self) -> bool:
        """Whether QEMU counts the requests of its disk."""
        ...

    def begin(self) -> None:
        """Record the state of all counters when the load begins."""
        ...

    def spent(self) -> Spent:
        """Return the CPU time of each thread since the load began."""
        ...

    def under_load(self, *, flushes: bool) -> tuple[Check, ...]:
        """Look who does the I/O now."""
        ...

    def trouble(self) -> str | None:
        """Say how QEMU ended, None while it runs."""
        ...


def busy_words(facts: BusyFacts) -> str | None:
    """Say what a host was waiting for while a disk stood still; None where it waited for little, or does not tell.

    A disk that is stuck, and one that a busy host gives neither a CPU nor its own disk, look alike from a guest.
    """
    waits = {"cpu": "a CPU", "io": "the host's disks"}
    pressure = () if isinstance(facts.pressure, Unknown) else facts.pressure
    shares = [
        f"{one.some_percent:.0f} % of the time for {waits[one.resource]}"
        for one in pressure
        if one.resource in waits and not isinstance(one.some_percent, Unknown) and one.some_percent >= _BUSY_PERCENT
    ]
    if not shares:
        return None
    return f"in the last 10 s processes of this host waited {' and '.join(shares)}: it may be that, and not this disk"


@contextlib.contextmanager
def counted(
    guests: Sequence[Loaded], keep: Keep, *, idle: Sequence[int], last_words: bool = False
) -> Iterator["Counted"]:
    """Yield the reader of the counters of this host and of each QEMU, and keep the samples when the block ends.

    `idle` are the processes of idle guests beside them; with `last_words` the end of a console is the hint, for
    guests that only write there why they end. Raises LoadError with the reason for any failure in the block, and
    keeps the evidence.
    """
    for number, guest in enumerate(guests):
        keep.capture(of_guest("guest.json", number), json.dumps(dict(guest.seen)) + "\n")
    with keep.host(processes=guests[0].processes, image=guests[0].image) as host:
        for role, pids in (("guest", [one.vm.child.pid for one in guests[1:]]), ("idle", idle)):
            for pid in pids:
                host.add_process(role, pid)
        found = Counted(guests, host)
        try:
            yield found
        except (LoadError, RigError) as error:
            keep.capture("trouble.txt", "".join(guest.vm.evidence() for guest in guests))
            if isinstance(error, LoadError):
                if error.hint is None and NOTHING_DONE in error.message:
                    raise LoadError(error.message, hint=busy_words(busy_facts())) from None
                raise
            ended = next((how for guest in guests if (how := guest.trouble()) is not None), None)
            consoles = [console_end(guest.vm.console) for guest in guests] if last_words else []
            words = next((last for console in consoles if (last := last_line(console))), None)
            raise LoadError(ended or error.message, hint=words or (None if ended else error.hint)) from None
        finally:
            found.keep(keep)


class Counted:
    """The reads at the begin and end of the measured time: this host's and QEMU's counters, CPU time per thread. The
    virtqueues of the disks are sampled in between.
    """

    def __init__(self, guests: Sequence[Loaded], host: HostCounters) -> None:
        self._guests, self._host = guests, host
        self._looks: list[dict[str, dict[str, object]]] = [{} for _ in guests]
        self._spent: list[Spent] = []
        self._rings = TrialRings()

    def begin(self) -> None:
        """The measured time begins."""
        self._look("begin")
        vms = (guest.vm for guest in self._guests)
        self._rings.begin(
            functools.partial(RingReader.of, vm.monitor, vm.child.pid, f"/machine/peripheral/{DEVICE}") for vm in vms
        )

    def end(self) -> None:
        """The measured time ends."""
        self._rings.end()
        self._look("stop")
        self._spent = [guest.spent() for guest in self._guests]

    def keep(self, keep: Keep) -> None:
        """Keep the reads, also when the load failed in between; `t` is the host's monotonic clock in ns."""
        for number, content in self._rings.contents():
            keep.capture(of_guest(RINGS, number), content)
        for number, looks in enumerate(self._looks):
            if looks:
                keep.capture(of_guest("qemu-blockstats.json", number), json.dumps(looks) + "\n")
        for number, spent in enumerate(self._spent):
            by = {"ns_by_role": spent.by_role, "ns_by_iothread": spent.by_iothread, "ns_by_vcpu": spent.by_vcpu}
            keep.capture(of_guest("threads.json", number), json.dumps(by) + "\n")

    def _look(self, mark: str) -> None:
        self._host.sample(mark=mark)
        for guest, looks in zip(self._guests, self._looks, strict=True):
            looks[mark] = {"t": time.monotonic_ns(), "stats": guest.vm.block_statistics()}
            if (exits := guest.vm.exits()) is not None:
                looks[mark] = looks[mark] | {"exits": exits}


@dataclass(slots=True)
class GuestLoad:
    """A load in one guest."""

    bench: Loaded
    load: LoadJob
    progress: Progress


L = TypeVar("L", bound=GuestLoad)


class Together(Generic[L]):
    """The loads of all guests, watched together: `over` waits a moment for the end of one of them, `end` ends one."""

    def __init__(self, loads: Sequence[L], *, over: Callable[[L, float], bool], end: Callable[[L], None]) -> None:
        self._loads, self._left = loads, list(loads)
        self._over, self._end = over, end
        self._asked = time.monotonic()

    def ended(self, *, due: bool) -> bool:  # noqa: ARG002 - a guest says without delay that it ended
        """Wait a tick for the remaining ones to end; raises LoadError for one that failed."""
        share = TICK_SECONDS / len(self._left)
        self._left = [one for one in self._left if not self._over(one, share)]
        return not self._left

    def stuck(self) -> str | None:
        """Check from time to time whether each guest's disk completes any request."""
        now = time.monotonic()
        if now - self._asked < _LOOK_SECONDS:
            return None
        self._asked = now
        still = (one for one in self._left if one.progress.stuck(one.bench.vm.operations, now))
        return STUCK if next(still, None) is not None else None

    def stop(self) -> None:
        """End the remaining ones, as far as they react."""
        for one in self._left:
            with contextlib.suppress(GuestError):
                self._end(one)

    def look(self) -> tuple[Check, ...]:
        """Check which threads and rings do the I/O of each guest now."""
        return tuple(
            replace(check, guest=number)
            for number, one in enumerate(self._loads)
            for check in one.bench.under_load(flushes=one.load.flushes)
        )
