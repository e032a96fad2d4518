# SPDX-License-Identifier: Apache-2.0
"""A load of this host on some of its CPUs only."""

import contextlib
import os

from virtune.model.errors import LoadError
from virtune.model.evidence import UNDER_LOAD, Check
from virtune.probe.cpu import parse_list
from virtune.probe.process import Process


def pin_load(pid: int, cpus: str | None) -> None:
    """Pin all threads of a load that has just been started, and so those that they start; raises LoadError for CPUs
    that are not there for us. A load that has ended already is noticed by whoever waits for it.
    """
    if cpus is None:
        return
    process, pinned = Process(pid), set[int]()
    try:
        wanted = parse_list(cpus)
        # a thread that is not pinned yet may start another meanwhile
        while new := {thread.tid for thread in process.threads()} - pinned:
            for tid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(tid, wanted)
            pinned |= new
    except (OSError, ValueError, OverflowError):
        there = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        raise LoadError(
            f"load.pin={cpus} was refused: none of these CPUs is there for us",
            hint=f"the CPUs that we may use: {there}",
        ) from None


def pin_check(pid: int, cpus: str | None) -> tuple[Check, ...]:
    """Check the CPUs of every thread of a load; nothing without a request."""
    if cpus is None:
        return ()
    process = Process(pid)
    places = [found for thread in process.threads() if (found := process.cpus_of(thread.tid)) is not None]
    wanted = set(parse_list(cpus))
    wrong = {place for place in places if set(parse_list(place)) != wanted}
    found = None if not places else min(wrong) if wrong else cpus
    proof = f"Cpus_allowed_list of {len(places)} threads in /proc/{pid}/task {UNDER_LOAD}"
    return (Check(setting="load.pin", asked=cpus, found=found, proof=proof, hidden=not places),)
