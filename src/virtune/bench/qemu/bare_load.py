# SPDX-License-Identifier: Apache-2.0
"""A load in one or several guests without an operating system: prepared, started together, watched.

The guests' results are checked against this host's: their counts against QEMU's, their clocks against ours.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

from virtune.bench.guest.channel import GuestError
from virtune.bench.live.monitor import FIELDS
from virtune.bench.load import STUCK_SECONDS, Moments, Progress, watch
from virtune.bench.port import Keep, LoadJob, LoadOutput, Window
from virtune.bench.qemu.bare import BareVm
from virtune.bench.qemu.loaded import Counted, GuestLoad, Loaded, Together, counted
from virtune.model.errors import LoadError
from virtune.model.evidence import BARRIER, of_guest
from virtune.probe.process import Process

_SETTLE_SECONDS, _END_SECONDS = 0.05, 0.05
_ARM_SECONDS = 60.0
_ANSWER_SECONDS = 10.0

CLOCK_TOLERANCE = 0.005
"""The allowed difference of a guest's clock; its fallback timer is calibrated to 0.5 %."""

_CLOCK_SLACK_SECONDS = 0.1
"""How late this host may receive a guest's message where QEMU waits for no CPU."""

_CLOCK_LOOK_SECONDS = 0.1
"""The interval at which it is noted that a load still runs."""

_COUNTED = ("reads", "writes", "read_bytes", "written_bytes")
"""The counters that both the guest and QEMU have."""


class LoadedBare(Loaded, Protocol):
    """A guest without an operating system whose disk stands for a stack."""

    @property
    def vm(self) -> BareVm:
        """The guest."""
        ...


@dataclass(slots=True)
class _Running(GuestLoad):
    """A load in one guest, and its messages so far. `asked_to_go`, `went` and `ended` are times of our monotonic
    clock. `looks` are those at which it had not said that it ended, and the ns that QEMU's threads had waited for a
    CPU until then.
    """

    bench: LoadedBare
    before: Mapping[str, Mapping[str, Any]]
    said: dict[str, bytes] = field(default_factory=dict)
    asked_to_go: float = 0.0
    went: float = 0.0
    looks: list[tuple[float, int]] = field(default_factory=list)
    ended: float = 0.0
    failed: bool = False


def run_bare(
    guests: Sequence[LoadedBare], jobs: Sequence[LoadJob], window: Window, keep: Keep, *, idle: Sequence[int] = ()
) -> LoadOutput:
    """Run a load in each guest, all of them at once, to their end and return what they left.

    Raises LoadError with the reason when one of them has no trustworthy result.
    """
    with counted(guests, keep, idle=idle, last_words=True) as counters:
        running = [
            _Running(guest, job, Progress(direct=guest.counted), guest.vm.disk_statistics())
            for guest, job in zip(guests, jobs, strict=True)
        ]
        try:
            return _run(running, window, keep, counters)
        finally:
            for number, one in enumerate(running):
                if "counts" in one.said:
                    keep.capture(of_guest("guest-counts.json", number), one.said["counts"])
                if one.failed:
                    keep.capture(of_guest("guest-failure.json", number), one.said["result"])


def _run(running: Sequence[_Running], window: Window, keep: Keep, counters: Counted) -> LoadOutput:
    for one in running:
        _arm(one)
    for one in running:
        one.bench.begin()
    _let_go(running, keep)
    moments = Moments(
        begin_seconds=window.begins(_SETTLE_SECONDS),
        end_seconds=window.ends(_END_SECONDS),
        patience_seconds=window.patience_seconds,
        on_begin=counters.begin,
        on_end=counters.end,
    )
    checks = watch(Together(running, over=_told, end=_send_stop), moments)
    for one in running:
        _require_truth(one)
    outputs = [one.said["result"] for one in running]
    return LoadOutput(
        output=outputs[0],
        beside=tuple(outputs[1:]),
        log=b"".join(one.said["log"] for one in running),
        command="\n".join(f"virtune-guest: {one.load.job.text!r}" for one in running),
        checks=checks,
        operations=tuple(each for one in running if (each := one.said.get("each"))),
    )


def _arm(one: _Running) -> None:
    """Have the guest prepare its load; raises LoadError with its message when it cannot."""
    try:
        text = one.load.job.text.encode()
        one.bench.vm.line.ask("job", text, expect="armed", timeout_seconds=_ARM_SECONDS)
    except GuestError as error:
        raise LoadError(f"the guest refused the load: {error.message}") from None


def _let_go(running: Sequence[_Running], keep: Keep) -> None:
    """Start the loads of all guests, as simultaneously as possible."""
    words = f"{int(STUCK_SECONDS * 1000)} {int(time.time() * 1000)}".encode()
    for one in running:
        one.asked_to_go = time.monotonic()
        one.bench.vm.line.send("go", words)
    for one in running:
        frame = one.bench.vm.line.receive(_ANSWER_SECONDS)
        if frame is None or frame.kind != "began":
            raise LoadError("the guest did not begin")
        one.went = time.monotonic()
        one.looks.append((one.went, Process(one.bench.vm.child.pid).waited_ns()))
    if len(running) > 1:
        began = {"guests": len(running), "skew_seconds": max(o.went for o in running) - min(o.went for o in running)}
        keep.capture(BARRIER, json.dumps(began) + "\n")


def _send_stop(one: _Running) -> None:
    """Stop the load; the machine ends after a failed load."""
    one.bench.vm.line.send("stop")


def _told(one: _Running, seconds: float) -> bool:
    """Receive a guest's messages for a moment; returns whether the result was among them. Raises LoadError when it
    failed.
    """
    begun = time.monotonic()
    frame = one.bench.vm.line.receive(seconds)
    if frame is None:
        if not one.ended and begun - one.looks[-1][0] >= _CLOCK_LOOK_SECONDS:
            one.looks.append((begun, Process(one.bench.vm.child.pid).waited_ns()))
        return False
    one.said[frame.kind] = frame.body
    if frame.kind == "ended":
        one.ended = time.monotonic()
        one.looks.append((one.ended, Process(one.bench.vm.child.pid).waited_ns()))
    if frame.kind == "failed":
        raise LoadError(f"the load in the guest failed: {frame.body.decode(errors='replace')[:300]}")
    if frame.kind == "result":
        own = json.loads(frame.body)["virtune-load"]
        one.failed = own["ended_by"] == "error"
        if one.failed:
            raise LoadError(f"the load in the guest failed: {own['message']}")
    return frame.kind == "result"


def _require_truth(one: _Running) -> None:
    """Raise LoadError when a guest's clock or counts differ from this host's."""
    seconds = int(one.said["ended"]) / 1e9
    most, least = one.ended - one.asked_to_go, least_seconds(one.looks)
    if (wrong := wrong_clock(seconds, least=least, most=most)) is not None:
        hint = f"its clock is {one.bench.seen.get('clock')} at {one.bench.seen.get('tsc_hz')} Hz"
        raise LoadError(wrong, hint=hint)
    if not one.bench.counted:
        return
    own, after = json.loads(one.said["counts"])["disks"], one.bench.vm.disk_statistics()
    for disk in sorted({*own, *after}):
        if (wrong := miscounted(own.get(disk, {}), one.before.get(disk, {}), after.get(disk, {}))) is not None:
            raise LoadError(f"{disk}: {wrong}" if len(after) > 1 else wrong)


def least_seconds(looks: Sequence[tuple[float, int]]) -> float:
    """Return how long a load ran at least: until the last look at which it had not said that it ended, but for the
    time that this word may have been on its way, while QEMU's threads waited for a CPU.

    Of each look there is the time and how many ns these threads had waited. The first is when the load began, the
    last when its end was heard of.
    """
    begun, waited = looks[0][0], looks[-1][1]
    bounds = (
        at - begun - _CLOCK_SLACK_SECONDS - (waited - before) / 1e9 for (_, before), (at, _) in pairwise(looks[:-1])
    )
    return max(bounds, default=0.0)


def wrong_clock(seconds: float, *, least: float, most: float) -> str | None:
    """Say how a guest's clock is wrong: it counted more time than passed here, or less than it ran."""
    if least * (1 - CLOCK_TOLERANCE) <= seconds <= most * (1 + CLOCK_TOLERANCE):
        return None
    here = f"{max(least, 0):.3f} to {most:.3f} s"
    return f"the guest's clock cannot be trusted: it counted {seconds:.3f} s where this host counted {here}"


def miscounted(counted: Mapping[str, int], before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """Say where a guest's counts of its disk differ from QEMU's."""
    for ours in _COUNTED:
        there = after.get(FIELDS[ours], 0) - before.get(FIELDS[ours], 0)
        if counted.get(ours, 0) != there:
            return f"the guest counted {counted.get(ours, 0)} {ours.replace('_', ' ')}, and QEMU {there}"
    return None
