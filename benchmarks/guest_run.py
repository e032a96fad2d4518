# SPDX-License-Identifier: Apache-2.0
"""How much of a comparison in a guest is measuring: the whole run against its trials and one boot.

    python -m benchmarks.guest_run [RUNS]

Boots a guest once for its boot time, then runs, with a store and a scratch image of its own that is filled before,

    virtune compare --rig qemu --vary disk.aio=threads,native,io_uring --rounds 3

and prints its wall time without the boot over the time of its attempts: ramp and measured time of each, of repeated
ones too.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from virtune.bench.qemu.machine import running
from virtune.bench.qemu.rig import ready_appliance
from virtune.shell import Warden

WORDS = ("compare", "--rig", "qemu", "--vary", "disk.aio=threads,native,io_uring", "--rounds", "3")


def main() -> None:
    """Run it, and print the ratio of every run."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        place = ("--scratch", f"{directory}/scratch", "--store", f"{directory}/store.sqlite", "--json", "-q")
        virtune = [sys.executable, "-m", "virtune"]
        fill = [*virtune, "measure", "--rig", "metal", "--rounds", "1", "--seconds", "100ms", *place]
        subprocess.run(fill, check=True, capture_output=True)
        for _ in range(runs):
            with Warden(f"run-{os.getpid()}") as warden, running(ready_appliance(), warden, kvm=False) as vm:
                boot = vm.boot_seconds
            begun = time.monotonic()
            done = subprocess.run([*virtune, *WORDS, *place], check=True, capture_output=True, text=True)
            wall = time.monotonic() - begun
            found = json.loads(done.stdout)
            attempts = sum(round_["attempt"] for arm in found["arms"] for round_ in arm["rounds"])
            measuring = attempts * (found["study"]["seconds"] + found["study"]["ramp_seconds"])
            ratio = (wall - boot) / measuring
            print(
                f"{wall:.1f} s for {attempts} attempts of {measuring / attempts:.1f} s and a boot of {boot:.1f} s:"
                f" {ratio:.2f} x that, and the boot; load average {Path('/proc/loadavg').read_text()[:4]}",
                flush=True,
            )


main()
