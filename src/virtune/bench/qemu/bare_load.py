# SPDX-License-Identifier: Apache-2.0
"""A load in guests without an operating system, in one or in several at once: armed, let go together, watched.

What the guests say is held against what this host knows: their counts against QEMU's, their clocks against ours.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from virtune.bench.guest.channel import GuestError
from virtune.bench.port import HostCounters, Keep, LoadJob, LoadOutput, Window
from virtune.bench.qemu.bare import BareVm
from virtune.bench.qemu.machine import console_end
from virtune.bench.verify.threads import Spent
from virtune.bench.watch import STUCK, STUCK_SECONDS, TICK_SECONDS, Moments, Progress, watch
from virtune.model.errors import LoadError, RigError
from virtune.model.evidence import BARRIER, Check, of_guest
from virtune.shell import last_line

_SETTLE_SECONDS, _END_SECONDS = 0.05, 0.05
_ARM_SECONDS = 60.0
_ANSWER_SECONDS = 10.0
_LOOK_SECONDS = 1.0

CLOCK_TOLERANCE = 0.005
"""A guest's second may differ from ours by so much; its timer of last resort is calibrated to 0.5 %."""

_CLOCK_SLACK_SECONDS = 0.1
"""How late this host may see what a guest said, beside the time of a look."""

_COUNTED = (("reads", "rd_operations"), ("writes", "wr_operations"), ("read_bytes", "rd_bytes"),
            ("written_bytes", "wr_bytes"))  # fmt: skip
"""What the guest counts of its disk, and QEMU's names for it."""


class LoadedBare(Protocol):
    """A guest without an operating system whose disk stands for a stack, as far as its load needs it."""

    vm: BareVm
    seen: Mapping[str, str]
    processes: Mapping[str, int]
    image: Path | None

    def begin(self) -> None:
        """Note how far everything has come when the load begins."""
        ...

    def spent(self) -> Spent:
        """Return who was how long on a CPU since the load began."""
        ...

    def under_load(self, *, flushes: bool) -> tuple[Check, ...]:
        """Look who does the I/O now."""
        ...

    def trouble(self) -> str | None:
        """Say how QEMU ended, None while it runs."""
        ...


@dataclass(slots=True)
class _Running:
    """A load in one guest, and what it has said so far. `went` and `seen_running` are of our monotonic clock."""

    bench: LoadedBare
    load: LoadJob
    progress: Progress
    before: Mapping[str, Any]
    said: dict[str, bytes] = field(default_factory=dict)
    asked_to_go: float = 0.0
    went: float = 0.0
    seen_running: float = 0.0
    ended: float = 0.0


def run_bare(
    guests: Sequence[LoadedBare], jobs: Sequence[LoadJob], window: Window, keep: Keep, *, idle: Sequence[int] = ()
) -> LoadOutput:
    """Run a load in each guest, all of them at once, to their end and return what they left.

    Raises LoadError with the reason when one of them has no result that can be trusted.
    """
    for number, guest in enumerate(guests):
        keep.capture(of_guest("guest.json", number), json.dumps(dict(guest.seen)) + "\n")
    with keep.host(processes=guests[0].processes, image=guests[0].image) as host:
        for role, pids in (("guest", [one.vm.child.pid for one in guests[1:]]), ("idle", idle)):
            for pid in pids:
                host.add_process(role, pid)
        try:
            return _run(guests, jobs, window, keep, host)
        except (LoadError, RigError) as error:
            keep.capture("trouble.txt", "".join(guest.vm.evidence() for guest in guests))
            if isinstance(error, LoadError):
                raise
            ended = next((how for guest in guests if (how := guest.trouble()) is not None), None)
            words = next((last for one in guests if (last := last_line(console_end(one.vm.console)))), None)
            raise LoadError(ended or error.message, hint=words or (None if ended else error.hint)) from None


def _run(
    guests: Sequence[LoadedBare], jobs: Sequence[LoadJob], window: Window, keep: Keep, host: HostCounters
) -> LoadOutput:
    running = [
        _Running(guest, job, Progress(direct=True), guest.vm.block_statistics())
        for guest, job in zip(guests, jobs, strict=True)
    ]
    for one in running:
        _arm(one)
    for one in running:
        one.bench.begin()
    _let_go(running, keep)
    spent: list[Spent] = []

    def look(mark: str) -> None:
        host.sample(mark=mark)
        for one in running:
            looks.setdefault(one.bench.vm.child.pid, {})[mark] = {
                "t": time.monotonic_ns(),
                "stats": one.bench.vm.block_statistics(),
            }
        if mark == "stop":
            spent.extend(one.bench.spent() for one in running)

    looks: dict[int, dict[str, object]] = {}
    moments = Moments(
        begin_seconds=window.begins(_SETTLE_SECONDS),
        end_seconds=window.ends(_END_SECONDS),
        patience_seconds=window.patience_seconds,
        on_begin=lambda: look("begin"),
        on_end=lambda: look("stop"),
    )
    try:
        checks = watch(_Guests(running), moments)
    finally:
        _keep(running, looks, spent, keep)
    for one in running:
        _require_truth(one)
    outputs = [one.said["result"] for one in running]
    return LoadOutput(
        output=outputs[0],
        beside=tuple(outputs[1:]),
        log=b"".join(one.said["log"] for one in running),
        command="\n".join(f"virtune-guest: {one.load.job.text!r}" for one in running),
        checks=checks,
    )


def _arm(one: _Running) -> None:
    """Have the guest make its load ready; raises LoadError with its words when it cannot."""
    try:
        text = one.load.job.text.encode()
        one.bench.vm.line.ask("job", text, expect="armed", timeout_seconds=_ARM_SECONDS)
    except GuestError as error:
        raise LoadError(f"the guest refused the load: {error.message}") from None


def _let_go(running: Sequence[_Running], keep: Keep) -> None:
    """Let all guests begin, as near together as may be."""
    words = f"{int(STUCK_SECONDS * 1000)} {int(time.time() * 1000)}".encode()
    for one in running:
        one.asked_to_go = time.monotonic()
        one.bench.vm.line.send("go", words)
    for one in running:
        frame = one.bench.vm.line.receive(_ANSWER_SECONDS)
        if frame is None or frame.kind != "began":
            raise LoadError("the guest did not begin")
        one.went = one.seen_running = time.monotonic()
    if len(running) > 1:
        began = {"guests": len(running), "skew_seconds": max(o.went for o in running) - min(o.went for o in running)}
        keep.capture(BARRIER, json.dumps(began) + "\n")


def _keep(
    running: Sequence[_Running], looks: Mapping[int, Mapping[str, object]], spent: Sequence[Spent], keep: Keep
) -> None:
    """Keep what was read and said, also when the load broke off in between."""
    for number, one in enumerate(running):
        if one.bench.vm.child.pid in looks:
            keep.capture(of_guest("qemu-blockstats.json", number), json.dumps(looks[one.bench.vm.child.pid]) + "\n")
        if "counts" in one.said:
            keep.capture(of_guest("guest-counts.json", number), one.said["counts"])
    for number, by in enumerate(spent):
        shares = {"ns_by_role": by.by_role, "ns_by_iothread": by.by_iothread, "ns_by_vcpu": by.by_vcpu}
        keep.capture(of_guest("threads.json", number), json.dumps(shares) + "\n")


class _Guests:
    """The loads of all guests, watched as one."""

    def __init__(self, loads: Sequence[_Running]) -> None:
        self._loads, self._left = loads, list(loads)
        self._asked = time.monotonic()

    def ended(self, *, due: bool) -> bool:  # noqa: ARG002 - a guest says without delay that it ended
        """Wait a tick for the results of those that are left; raises LoadError for one that has none."""
        share = TICK_SECONDS / len(self._left)
        self._left = [one for one in self._left if not _told(one, share)]
        return not self._left

    def stuck(self) -> str | None:
        """Ask now and then whether each guest's disk completes anything."""
        now = time.monotonic()
        if now - self._asked < _LOOK_SECONDS:
            return None
        self._asked = now
        still = (one for one in self._left if one.progress.stuck(one.bench.vm.operations, now))
        return STUCK if next(still, None) is not None else None

    def stop(self) -> None:
        """Let them send no more; their machines end after a load that failed."""
        for one in self._left:
            one.bench.vm.line.send("stop")

    def look(self) -> tuple[Check, ...]:
        """Look who does the I/O of each guest now."""
        return tuple(
            replace(check, guest=number)
            for number, one in enumerate(self._loads)
            for check in one.bench.under_load(flushes=one.load.flushes)
        )


def _told(one: _Running, seconds: float) -> bool:
    """Take what a guest says in a moment, and whether that was its result. Raises LoadError when it failed."""
    frame = one.bench.vm.line.receive(seconds)
    now = time.monotonic()
    if frame is None:
        if not one.ended:
            one.seen_running = now - seconds
        return False
    one.said[frame.kind] = frame.body
    if frame.kind == "ended":
        one.ended = now
    if frame.kind == "failed":
        raise LoadError(f"the load in the guest failed: {frame.body.decode(errors='replace')[:300]}")
    if frame.kind == "result":
        own = json.loads(frame.body)["virtune-load"]
        if own["ended_by"] == "error":
            raise LoadError(f"the load in the guest failed: {own['message']}")
    return frame.kind == "result"


def _require_truth(one: _Running) -> None:
    """Raise LoadError when a guest's clock or counts are not this host's."""
    seconds = int(one.said["ended"]) / 1e9
    most, least = one.ended - one.asked_to_go, one.seen_running - one.went - _CLOCK_SLACK_SECONDS
    if (wrong := wrong_clock(seconds, least=least, most=most)) is not None:
        hint = f"its clock is {one.bench.seen.get('clock')} at {one.bench.seen.get('tsc_hz')} Hz"
        raise LoadError(wrong, hint=hint)
    counted = json.loads(one.said["counts"])["completed"]
    if (wrong := miscounted(counted, one.before, one.bench.vm.block_statistics())) is not None:
        raise LoadError(wrong)


def wrong_clock(seconds: float, *, least: float, most: float) -> str | None:
    """Say that a guest's clock is wrong: it counted more than went by here, or less than it was seen to run."""
    if least * (1 - CLOCK_TOLERANCE) <= seconds <= most * (1 + CLOCK_TOLERANCE):
        return None
    here = f"{max(least, 0):.3f} to {most:.3f} s"
    return f"the guest's clock cannot be trusted: it counted {seconds:.3f} s where this host counted {here}"


def miscounted(counted: Mapping[str, int], before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """Say where a guest's counts of its disk are not QEMU's."""
    for ours, qemus in _COUNTED:
        there = after.get(qemus, 0) - before.get(qemus, 0)
        if counted[ours] != there:
            return f"the guest counted {counted[ours]} {ours.replace('_', ' ')}, and QEMU {there}"
    return None
