# SPDX-License-Identifier: Apache-2.0
"""Verify an export: its kind, the thread it runs in, its polling time, its number of queues.

A `qemu-storage-daemon` has no `query-iothreads` and names no thread, so an IOThread is recognised as the one thread
that appeared when it was created. Whether the export runs in it is verified under load, by the CPU time of the
threads.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from virtune.bench.verify.image import on_off
from virtune.bench.verify.threads import serving_thread
from virtune.model.evidence import UNDER_LOAD, Check
from virtune.model.stack import Stack

_MAIN_LOOP_NS = 5_000_000
"""A main loop that does not serve the export uses little CPU: a connecting client costs it less than 5 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a daemon shows of its export. `threads` are those that appeared with the IOThread; None: not shown."""

    kind: str | None
    threads: frozenset[int]
    poll_max_ns: int | None
    queues: int | None


def export_checks(stack: Stack, served: Served) -> Iterator[Check]:
    """Compare what the daemon shows of its export with the stack's settings."""
    yield Check(setting="disk.export", asked=stack.export, found=served.kind, proof="QMP query-block-exports")
    if stack.export == "vhost-user-blk" or stack.iothread is not None:
        yield _thread_check(stack, served.threads)
    if stack.poll_max_ns is not None:
        found = None if served.poll_max_ns is None else str(served.poll_max_ns)
        yield Check(
            setting="iothread.poll_max_ns", asked=str(stack.poll_max_ns), found=found, proof="QMP qom-get poll-max-ns"
        )
    if stack.export == "vhost-user-blk":
        found = None if served.queues is None else str(served.queues)
        answers = "the server's answer to GET_QUEUE_NUM"
        proof = answers if found else "the server does not answer GET_QUEUE_NUM"
        yield Check(setting="export.num_queues", asked=str(stack.queues), found=found, proof=proof)


def iothread_of(served: Served) -> int | None:
    """Return the thread id of the export's IOThread, None where there is none or it cannot be identified."""
    return next(iter(served.threads)) if len(served.threads) == 1 else None


def iothread_check_under_load(stack: Stack, iothread: int, own_ns: int, main_ns: int) -> Check:
    """Find out from the CPU time under load whether the IOThread or the main loop serves the export."""
    served = serving_thread(own_ns, main_ns, main_enough_ns=_MAIN_LOOP_NS)
    proof = f"thread {iothread} used {own_ns / 1e6:.1f} ms of CPU {UNDER_LOAD}, the main loop {main_ns / 1e6:.1f}"
    found = None if served is None else on_off(served)
    return Check(setting="export.iothread", asked=on_off(stack.in_iothread), found=found, proof=proof)


def _thread_check(stack: Stack, threads: frozenset[int]) -> Check:
    """Return the check before the load: the thread's existence does not prove yet that the export runs in it."""
    asked = on_off(stack.in_iothread)
    if not stack.in_iothread:
        return Check(setting="export.iothread", asked=asked, found="off", proof="the daemon was given no IOThread")
    if len(threads) != 1:
        proof = f"{len(threads)} threads came with the IOThread, so it cannot be told apart"
    else:
        proof = f"thread {next(iter(threads))} came with the IOThread; the load tells whether the export runs in it"
    return Check(setting="export.iothread", asked=asked, found=None, proof=proof)
