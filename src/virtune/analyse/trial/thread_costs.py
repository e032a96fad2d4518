# SPDX-License-Identifier: Apache-2.0
"""The cost of each kind of thread: CPU time per I/O, waiting time for a CPU, highest possible rate."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Literal

from virtune.model.counters import RoleUse, ThreadUse, Use
from virtune.model.evidence import CREW, of_guest
from virtune.model.threads import THREAD_ROLES, ThreadCost, ThreadRole, thread_role


def thread_costs(parts: Mapping[str, bytes], used: Use) -> tuple[ThreadCost, ...]:
    """Return every thread of QEMU, of a storage daemon and of the load on this host, with its role."""
    crew = _crew(parts)
    return tuple(
        ThreadCost(
            role=_role(role.role, one, crew),
            name=one.comm,
            tid=one.tid,
            seconds=used.seconds,
            cpu_seconds=one.cpu_seconds,
            user_seconds=one.user_seconds,
            system_seconds=one.system_seconds,
            wait_seconds=one.wait_seconds,
            sleeps=one.sleeps,
            preempted=one.preempted,
        )
        for role in used.roles
        if role.role in ("guest", "daemon", "load")
        for one in role.threads
    )


def cost_values(parts: Mapping[str, bytes], used: Use, iops: float | None) -> Iterator[tuple[str, float]]:
    """Yield the metrics of threads by role: CPU time per I/O, context switches per I/O, the share of
    runnable time spent waiting for a CPU.
    """
    costs = thread_costs(parts, used)
    load = used.role("load")
    for name in (*THREAD_ROLES, "load"):
        mine = [one for one in costs if one.role == name]
        spent = math.fsum(one.cpu_seconds for one in mine)
        if name == "load" and load is not None:
            spent += _ended_seconds(load)
        if mine and iops:
            yield f"cpu.io.{name}", spent / used.seconds / iops
        switched = [one.switches for one in mine if one.switches is not None]
        if switched and iops:
            yield f"switches.io.{name}", sum(switched) / used.seconds / iops
        waits = [one.wait_seconds for one in mine if one.wait_seconds is not None]
        wanted = math.fsum(one.cpu_seconds for one in mine) + math.fsum(waits)
        if waits and wanted > 0:
            yield f"wait.{name}", math.fsum(waits) / wanted * 100
    exits = _exits(parts)
    if exits is not None and iops:
        yield "exits.io", exits / iops
    if used.cpu is not None:
        yield "cpu.host.usr", used.cpu.user_percent
        yield "cpu.host.sys", used.cpu.system_percent


def _exits(parts: Mapping[str, bytes]) -> float | None:
    """Return the exits to KVM a second, all guests together; None where KVM did not count them."""
    found, number = 0.0, 0
    while (name := of_guest("qemu-blockstats.json", number)) in parts:
        try:
            looks = json.loads(parts[name])
            begin, stop = looks["begin"], looks["stop"]
            found += (stop["exits"] - begin["exits"]) / (stop["t"] - begin["t"]) * 1e9
        except (KeyError, ValueError, TypeError, ZeroDivisionError, RecursionError):
            return None
        number += 1
    return found if number else None


def _ended_seconds(role: RoleUse) -> float:
    """Return what threads used that ended unseen, which is counted with their process alone."""
    return max(0.0, role.cpu_seconds - math.fsum(one.cpu_seconds for one in role.threads)) if role.ended else 0.0


def _crew(parts: Mapping[str, bytes]) -> Mapping[int, ThreadRole] | None:
    """Return the roles of a storage daemon's threads, which have no names; None if they were not recorded."""
    try:
        seen = json.loads(parts[CREW])
        found: dict[int, ThreadRole] = {int(tid): "other" for tid in seen["crew"]}
        if seen["iothread"] is not None:
            found[int(seen["iothread"])] = "iothread"
    except (KeyError, ValueError, TypeError, RecursionError):
        return None
    return found


def _role(process: str, thread: ThreadUse, crew: Mapping[int, ThreadRole] | None) -> ThreadRole | Literal["load"]:
    if process == "load":
        return "load"
    told = thread_role(thread.comm, main=thread.first)
    if process == "daemon" and told == "other" and crew is not None:
        return crew.get(thread.tid, "worker")
    return told
