# SPDX-License-Identifier: Apache-2.0
"""Where a process's threads may run: all of them count but those that the kernel alone places."""

import os
import subprocess
import sys

import pytest

from virtune.bench.qemu.placement import place_checks
from virtune.model.machine import Pins
from virtune.model.stack import Stack
from virtune.probe.process import Process

THREADS = """
import os, sys, threading
first, everywhere = min(os.sched_getaffinity(0)), os.sched_getaffinity(0)
ready = threading.Event()
def run():
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
        comm.write(sys.argv[1])
    os.sched_setaffinity(0, everywhere)
    ready.set()
    threading.Event().wait()
threading.Thread(target=run, daemon=True).start()
ready.wait()
os.sched_setaffinity(0, {first})
print(first, flush=True)
sys.stdin.read()
"""
"""A process whose main thread runs on the first CPU, and another thread, of a name that is given, on all."""


@pytest.mark.parametrize(("name", "held"), [("iou-wrk-4711", True), ("iou-sqp-4711", True), ("worker", False)])
def test_only_the_kernels_own_workers_may_run_elsewhere(name: str, *, held: bool) -> None:
    words = [sys.executable, "-c", THREADS, name]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        first = child.stdout.readline().strip()
        (check,) = place_checks(Stack(rig="qemu", pins=Pins(emulator=first)), Process(child.pid))
        child.communicate("")
    assert check.setting == "emulator.pin"
    assert check.agrees is (held or len(os.sched_getaffinity(0)) == 1)
    assert check.proof.startswith(f"Cpus_allowed_list of {1 if held else 2} threads")
