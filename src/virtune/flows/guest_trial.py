# SPDX-License-Identifier: Apache-2.0
"""The part of a trial that is another one in a guest: its load, what it leaves, what it ran on."""

import json
from typing import cast

from virtune.bench.counters import Sampler
from virtune.bench.load import Loaded, Moments
from virtune.bench.rig import Bench
from virtune.model.evidence import Capture
from virtune.model.study import Study
from virtune.model.workload import Workload
from virtune.plan.job import FioJob

_SETTLE_SECONDS = 0.05
"""A load in a guest begins when the barrier opens, give or take the guest's look at it."""

_END_SECONDS = 0.1


def load_in_guest(
    study: Study, workload: Workload, job: FioJob, bench: Bench, sampler: Sampler, captures: list[Capture]
) -> Loaded:
    """Run the trial's load in its guest; what is seen of the guest is kept, whatever becomes of the load."""
    from virtune.bench.guest_load import Evidence, GuestJob, run_guest_load
    from virtune.bench.qemu import GuestBench

    guest = cast(GuestBench, bench)
    captures.append(_capture("accelerator.txt", f"{guest.accelerator.name}: {guest.accelerator.why}\n"))
    captures.append(_capture("guest.json", json.dumps(dict(guest.seen)) + "\n"))
    clones = sum(int(one.get("numjobs", "1")) for one in workload)
    evidence = Evidence()
    try:
        return run_guest_load(
            GuestJob(text=job.text, arguments=job.arguments, clones=clones),
            bench=guest,
            moments=_moments(study, sampler),
            flushes=workload.writes,
            evidence=evidence,
        )
    finally:
        captures.append(Capture(name="guest-counters.jsonl", content=evidence.counters))
        if evidence.trouble:
            captures.append(_capture("trouble.txt", evidence.trouble))


def _moments(study: Study, sampler: Sampler) -> Moments:
    return Moments(
        begin_seconds=study.ramp_seconds + min(_SETTLE_SECONDS, study.seconds / 3),
        end_seconds=study.ramp_seconds + study.seconds - min(_END_SECONDS, study.seconds / 6),
        on_begin=lambda _: _mark(sampler, "begin"),
        on_end=lambda: _mark(sampler, "stop"),
    )


def _mark(sampler: Sampler, mark: str) -> None:
    sampler.sample(mark=mark)


def _capture(name: str, text: str) -> Capture:
    return Capture(name=name, content=text.encode())
