# SPDX-License-Identifier: Apache-2.0
"""How long a guest takes from one stack to the next: engines under the running device, the rest by hot-plug.

    python -m benchmarks.guest_switching [SWITCHES] [KIND...]

One guest under TCG, no load. Prints median, 5 % and 95 % of each kind, as a trial's `changeover.txt` says it: from
taking down what was up to the guest seeing the new disk.
"""

import os
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from virtune.bench.appliance.build import appliance_for
from virtune.bench.appliance.sources import find_sources
from virtune.bench.port import DiskImageSpec
from virtune.bench.qemu.machine import Accelerator
from virtune.bench.qemu.rig import GuestSession
from virtune.model.stack import Device, Disk, Stack
from virtune.shell import Warden, cache_directory

SIZE = 64 * 1024**2
GUEST = Stack(rig="qemu")
KINDS = {
    "aio": [replace(GUEST, disk=Disk(aio=aio)) for aio in ("threads", "native", "io_uring")],
    "cache": [replace(GUEST, disk=Disk(cache=cache)) for cache in ("none", "writeback")],
    "queues": [replace(GUEST, device=Device(num_queues=queues)) for queues in (1, 2)],
    "iothread": [replace(GUEST, device=Device(iothread=thread)) for thread in (None, "io1")],
}


def main() -> None:
    """Switch through the stacks of each kind, and say how long that took."""
    switches = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    cache = cache_directory()
    appliance, _ = appliance_for(find_sources(cache / "packages"), cache / "appliances")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory, Warden(f"switch-{os.getpid()}") as warden:
        image = Path(directory) / "image.raw"
        image.write_bytes(os.urandom(SIZE))
        ground = DiskImageSpec(image=image, size_bytes=SIZE, writes=False)
        rig = GuestSession(appliance, Accelerator(kvm=False, why="everywhere the same", tried=False), warden)
        for kind, stacks in ((kind, KINDS[kind]) for kind in sys.argv[2:] or KINDS):
            took, ways = [], set()
            for number in range(switches + 1):
                with rig.up(stacks[number % len(stacks)], ground) as bench:
                    assert bench.changeover is not None
                    if number:  # the first comes from another kind, or boots
                        took.append(bench.changeover.seconds * 1e3)
                        ways.add(bench.changeover.swapped)
            low, *_, high = statistics.quantiles(took, n=20)
            middle = statistics.median(took)
            print(
                f"{kind:9} {len(took)} x {'/'.join(map(str, ways))}: {middle:.0f} ms [{low:.0f}, {high:.0f}]",
                flush=True,
            )
        rig.give_up()


main()
