# SPDX-License-Identifier: Apache-2.0
"""The part of a trial that is another one in a domain of the user's: its load, what it leaves, what it ran on."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from virtune.bench.counters import Sampler
from virtune.bench.load import Loaded
from virtune.bench.port import Bench
from virtune.fio.job import FioJob
from virtune.flows.guest_trial import moments_in_guest
from virtune.model.event import Event, StepEnded, StepStarted
from virtune.model.evidence import Capture
from virtune.model.study import Study
from virtune.model.workload import Workload

if TYPE_CHECKING:
    from virtune.bench.libvirt.access import DomainAccess


def ready_domains(study: Study, say: Callable[[Event], None]) -> "Mapping[str, DomainAccess]":
    """Look for the domains of a study and what a load needs in them, before anything is made.

    Returns the ways into them by their names. Raises PreconditionError with what is missing and what to do.
    """
    if study.connect is None:
        return {}
    from virtune.bench.libvirt.access import find_way, require_possible

    found: dict[str, DomainAccess] = {}
    for domain in dict.fromkeys(arm.stack.domain for arm in study.arms if arm.stack.domain is not None):
        what = f"looking into {domain}"
        say(StepStarted(what=what))
        way = find_way(study.connect, domain)
        for arm in study.arms:
            if arm.stack.domain == domain:
                require_possible(way, arm.stack)
        found[domain] = way
        say(StepEnded(what=what))
    return found


def load_in_domain(
    study: Study, workload: Workload, job: FioJob, bench: Bench, sampler: Sampler, captures: list[Capture]
) -> Loaded:
    """Run the trial's load in its domain; what is seen of the guest is kept, whatever becomes of the load."""
    from virtune.bench.libvirt.load import run_domain_load
    from virtune.bench.libvirt.rig import DomainBench
    from virtune.bench.qemu.load import Evidence, GuestJob

    domain = cast(DomainBench, bench)
    texts = {
        "accelerator.txt": f"{domain.accelerator}: {domain.accelerator_why}\n",
        "guest.json": json.dumps(dict(domain.seen)) + "\n",
        "domain.xml": domain.xml,
    }
    captures += [Capture(name=name, content=text.encode()) for name, text in texts.items()]
    clones = sum(int(one.get("numjobs", "1")) for one in workload)
    evidence = Evidence()
    try:
        return run_domain_load(
            GuestJob(text=job.text, arguments=job.arguments, clones=clones, direct=workload.direct),
            bench=domain,
            moments=moments_in_guest(study, sampler),
            flushes=workload.writes,
            evidence=evidence,
        )
    finally:
        captures.append(Capture(name="guest-counters.jsonl", content=b"".join(evidence.counters)))
        if evidence.trouble:
            captures.append(Capture(name="trouble.txt", content=evidence.trouble.encode()))
