# SPDX-License-Identifier: Apache-2.0
"""What there is here: the facts of this host, with warnings, and the knobs, with the installed QEMU's answers."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from virtune import shell
from virtune.analyse.study.host_rules import BUSY_PERCENT, judge_host
from virtune.analyse.trial.counters import device_count
from virtune.analyse.trial.gates import LITTLE_BPS
from virtune.bench.qemu.machine import last_tried
from virtune.bench.scratch import measured_in
from virtune.bench.volumes import seen_at
from virtune.model.counters import DeviceCount
from virtune.model.errors import PreconditionError
from virtune.model.event import Say, StepEnded, StepProgressed, StepStarted
from virtune.model.facts import BusyFacts, HostFacts, Unknown
from virtune.model.knob import Answer, Knob, Layer
from virtune.model.knobs import KNOBS, matching
from virtune.model.remark import GATE_BY_ID, Remark
from virtune.model.text import format_bandwidth, format_seconds, format_share
from virtune.probe import tree
from virtune.probe.devices import backing_of
from virtune.probe.host import busy_facts, host_facts


def probe(scratch: Path) -> tuple[HostFacts, tuple[Remark, ...]]:
    """Return the facts of this host, and the warnings on them, the most severe first."""
    facts = host_facts(seen_at(scratch))
    tried = last_tried(shell.cache_directory())
    if tried is not None:
        facts = replace(facts, kvm=replace(facts.kvm, boots_guest=tried.kvm, boot=tried.why))
    return facts, judge_host(facts)


def wait_until_quiet(
    seconds: float,
    say: Say,
    *,
    busy: Callable[[], BusyFacts] = busy_facts,
    scratch: Path | None = None,
    target: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until no remark would call this host busy, no other virtune measures in `scratch` and nobody uses the
    disks below it, or below a `target` in its place, so many seconds at most.

    Raises PreconditionError where it is busy still, or where nothing tells.
    """
    begun, what = clock(), f"waiting until this host is quiet, {format_seconds(seconds)} at most"
    say(StepStarted(what=what))
    while why := _in_use(busy(), scratch) or _disk_in_use(target or scratch, clock, sleep):
        short, told = why
        left = seconds - (clock() - begun)
        if left <= 0:
            raise PreconditionError(
                f"this host is not quiet after {format_seconds(seconds)}: {told}",
                hint="wait longer, or measure without --wait-quiet",
            )
        share = min(1.0, max(0.0, 1 - left / seconds))
        say(StepProgressed(what=f"waiting for a quiet host ({short})", fraction=share, seconds_left=left))
        sleep(min(_LOOK_SECONDS, left))
    say(StepEnded(what=what))


_LOOK_SECONDS = 2.0
"""The kernel writes its averages of ten seconds anew every two."""


def _in_use(busy: BusyFacts, scratch: Path | None) -> tuple[str, str] | None:
    """Say in few words and in a sentence what this host is waited for; None where it is quiet."""
    resource, percent = _most_waited_for(busy)
    if scratch is not None and measured_in(scratch):
        return "another virtune", f"another virtune is measuring in {scratch}"
    if percent <= BUSY_PERCENT:
        return None
    return f"{resource} {percent:.0f} %", f"tasks waited for {resource} in {percent:.0f} % of the last 10 seconds"


_DISK_SECONDS = 1.0
"""How long the disks are looked at."""


def _disk_in_use(
    path: Path | None, clock: Callable[[], float], sleep: Callable[[float], None]
) -> tuple[str, str] | None:
    """Say the same of the disks below a path. Asynchronous direct I/O, as QEMU's, keeps no task waiting: no pressure
    tells of it.
    """
    names = [] if path is None else [one.name for one in backing_of(path).devices]
    if not names:
        return None
    before, begun = _counts(), clock()
    sleep(_DISK_SECONDS)
    seconds, after = clock() - begun, _counts()
    for name in (one for one in names if one in before and one in after):
        first, last = before[name], after[name]
        moved = last.read_bytes + last.written_bytes - first.read_bytes - first.written_bytes
        share = min(1.0, (last.busy_ms - first.busy_ms) / 1e3 / seconds)
        if share > (GATE_BY_ID["foreign-io"].invalid or 1.0) and moved >= LITTLE_BPS * seconds:
            told = f"others moved {format_bandwidth(moved / seconds)} on {name}, which was busy {format_share(share)}"
            return f"{name} {format_share(share)}", f"{told} of the time"
    return None


def _counts() -> dict[str, DeviceCount]:
    return dict(map(device_count, tree.lines("/proc/diskstats")))


def _most_waited_for(busy: BusyFacts) -> tuple[str, float]:
    """Return the resource that tasks waited for most, and in what percent of the time. One that is not seen may be
    the busy one.
    """
    shares: list[tuple[str, float]] = []
    if isinstance(busy.pressure, Unknown):
        raise _not_known(busy.pressure.because)
    for one in busy.pressure:
        if isinstance(one.some_percent, Unknown):
            raise _not_known(one.some_percent.because)
        shares.append((one.resource, one.some_percent))
    if not shares:
        raise _not_known("the kernel tells of no resource")
    return max(shares, key=lambda one: one[1])


def _not_known(because: str) -> PreconditionError:
    return PreconditionError(f"whether this host is quiet is not known: {because}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Knobs, and by their ids each installed program's answer; `asked` is False if none was queried."""

    knobs: tuple[Knob, ...]
    answers: dict[str, tuple[Answer, ...]]
    asked: bool


def look(name: str | None, *, layer: Layer | None = None, ask: bool = True, emulator: str | None = None) -> Shown:
    """Choose knobs by name and layer, and query QEMU for them unless told not to; `emulator` is another emulator than
    the installed one.

    Raises PlanError for a name that means no knob.
    """
    from virtune.probe import qemu_knobs

    knobs = KNOBS if name is None else matching(name)
    chosen = tuple(knob for knob in knobs if layer is None or knob.layer is layer)
    emulators = qemu_knobs.EMULATORS if emulator is None else (emulator,)
    return Shown(knobs=chosen, answers=qemu_knobs.ask(chosen, emulators=emulators) if ask else {}, asked=ask)
