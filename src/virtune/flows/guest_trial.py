# SPDX-License-Identifier: Apache-2.0
"""The part of a trial that is another one in a guest: its load, what it leaves, what it ran on.

With several guests each has captures of its own: those of the second end in `-2`, and so on.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from virtune.bench.counters import Sampler
from virtune.bench.load import Loaded
from virtune.bench.port import Bench, DiskImageSpec
from virtune.bench.watch import Moments
from virtune.fio.job import FioJob
from virtune.model.evidence import BARRIER, DISKS, Capture, of_guest
from virtune.model.study import Study
from virtune.model.workload import Workload
from virtune.plan.guests import share_of
from virtune.probe.devices import backing_of

if TYPE_CHECKING:
    from virtune.bench.qemu.machine import Vm
    from virtune.bench.verify.threads import Spent

_SETTLE_SECONDS = 0.05
"""A load in a guest begins when the barrier opens, give or take the guest's look at it."""

_END_SECONDS = 0.1


def load_in_guests(
    study: Study, workload: Workload, jobs: Sequence[FioJob], bench: Bench, sampler: Sampler, captures: list[Capture]
) -> Loaded:
    """Run the trial's load in its guests, a job for each; what is seen of them is kept, whatever becomes of it."""
    from virtune.bench.qemu.load import Evidence, GuestJob, run_guest_loads
    from virtune.bench.qemu.rig import GuestBench

    first = cast(GuestBench, bench)
    guests = (first, *first.beside)
    captures.append(_capture("accelerator.txt", f"{first.accelerator.name}: {first.accelerator.why}\n"))
    for number, guest in enumerate(guests):
        captures.append(_capture(of_guest("guest.json", number), json.dumps(dict(guest.seen)) + "\n"))
    for role, pids in (("guest", [one.vm.child.pid for one in first.beside]), ("idle", first.idle)):
        for pid in pids:
            sampler.add_process(role, pid)
    clones = sum(int(one.get("numjobs", "1")) for one in share_of(workload, first.stack))
    evidence, moments = Evidence(), moments_in_guest(study, sampler)
    counted = _Counted([guest.vm for guest in guests])

    def on_begin() -> None:
        moments.on_begin()
        counted.look("begin")

    def on_end() -> None:
        moments.on_end()
        counted.look("stop")
        for number, guest in enumerate(guests):
            captures.append(_capture(of_guest("threads.json", number), _spent(guest.spent())))

    try:
        return run_guest_loads(
            [
                (guest, GuestJob(text=job.text, arguments=job.arguments, clones=clones, direct=workload.direct))
                for guest, job in zip(guests, jobs, strict=True)
            ],
            moments=replace(moments, on_begin=on_begin, on_end=on_end),
            flushes=workload.writes,
            evidence=evidence,
        )
    finally:
        captures += counted.captures()
        for number, counters in enumerate(evidence.counters):
            captures.append(Capture(name=of_guest("guest-counters.jsonl", number), content=counters))
        if evidence.skew_seconds is not None:
            began = {"guests": len(guests), "skew_seconds": evidence.skew_seconds}
            captures.append(_capture(BARRIER, json.dumps(began) + "\n"))
        if evidence.trouble:
            captures.append(_capture("trouble.txt", evidence.trouble))


class _Counted:
    """What QEMU itself counts of each guest's disk, at the marks; `t` is the host's monotonic clock in ns."""

    def __init__(self, machines: "Sequence[Vm]") -> None:
        self._machines = machines
        self._looks: list[dict[str, object]] = [{} for _ in machines]

    def look(self, mark: str) -> None:
        """Ask every QEMU; raises RigError when one does not answer."""
        for machine, looks in zip(self._machines, self._looks, strict=True):
            looks[mark] = {"t": time.monotonic_ns(), "stats": machine.block_statistics()}

    def captures(self) -> Iterator[Capture]:
        """Yield what was seen, also when the load broke off in between."""
        for number, looks in enumerate(self._looks):
            if looks:
                yield _capture(of_guest("qemu-blockstats.json", number), json.dumps(looks) + "\n")


def _spent(spent: "Spent") -> str:
    by = {"ns_by_role": spent.by_role, "ns_by_iothread": spent.by_iothread, "ns_by_vcpu": spent.by_vcpu}
    return json.dumps(by) + "\n"


def disks_below(ground: DiskImageSpec) -> Iterator[Capture]:
    """Yield the capture of which disks guests are spread over, where they are."""
    if ground.image is not None and ground.second is not None:
        disks = [[disk.name for disk in backing_of(image).disks] for image in (ground.image, ground.second)]
        yield _capture(DISKS, json.dumps({"disks": disks}) + "\n")


def moments_in_guest(study: Study, sampler: Sampler) -> Moments:
    """Return when the counters of the measured time are read, counted from when the guest's load was let go."""
    return Moments(
        begin_seconds=study.ramp_seconds + min(_SETTLE_SECONDS, study.seconds / 3),
        end_seconds=study.ramp_seconds + study.seconds - min(_END_SECONDS, study.seconds / 6),
        on_begin=lambda: _mark(sampler, "begin"),
        on_end=lambda: _mark(sampler, "stop"),
    )


def _mark(sampler: Sampler, mark: str) -> None:
    sampler.sample(mark=mark)


def _capture(name: str, text: str) -> Capture:
    return Capture(name=name, content=text.encode())
