# SPDX-License-Identifier: Apache-2.0
"""From exec to a guest's first I/O, against virtme-ng, with the same kernel and accelerator, in alternation.

    python -m benchmarks.boot VIRTME_RUN KERNEL MODULES [PAIRS] [SECONDS]

VIRTME_RUN is virtme-ng's `virtme-run` (`pip install virtme-ng` into an environment of its own), KERNEL a kernel with
9p, which carries virtme-ng's root, and MODULES its modules (neither in /tmp nor in /var/tmp, which
virtme-ng's guest has its own of). Each side
starts a guest with 2 vCPUs, 512 MiB and a virtio-blk disk on the same file, under TCG; the clock stops when the host
knows that 4 KiB were read from the disk. Prints every pair, then the median of each and of the ratio.
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from virtune.bench.appliance.build import Appliance, appliance_for
from virtune.bench.appliance.sources import find_sources
from virtune.bench.port import DiskImageSpec
from virtune.bench.qemu.machine import Accelerator
from virtune.bench.qemu.rig import GuestSession
from virtune.model.stack import Stack
from virtune.shell import Warden, cache_directory

SIZE = 64 * 1024**2
READ = "dd if={} of=/dev/null bs=4k count=1 iflag=direct"
DEADLINE_SECONDS = 120.0


def ours(appliance: Appliance, image: Path, warden: Warden) -> float:
    """Boot a guest as the rig does, give it the disk, read from it; returns the seconds that took."""
    begun = time.monotonic()
    rig = GuestSession(appliance, Accelerator(kvm=False, why="both run on TCG", tried=False), warden)
    try:
        with rig.up(Stack(rig="qemu"), DiskImageSpec(image=image, size_bytes=SIZE, writes=False)) as bench:
            output = bench.vm.guest.run(READ.format(bench.target.path).split(), timeout_seconds=30)  # type: ignore[union-attr]
            assert output.status == 0, output
            return time.monotonic() - begun
    finally:
        rig.give_up()


def theirs(program: str, kernel: Path, modules: Path, image: Path) -> float:
    """The same with virtme-run, whose guest sees this host's files; without udev it must load the disk's driver."""
    driver = modules / "kernel" / "drivers" / "block" / "virtio_blk.ko"
    script = f"busybox insmod {driver}; {READ.format('/dev/vda')}"
    words = [program, "--kimg", str(kernel), "--mods", "auto", "--disable-kvm", "--memory", "512M", "--cpus", "2"]
    # without udev virtme-ng finds no port for the script's output, which is then the console's
    words += [
        "--show-boot-console",
        "-a",
        "quiet",
        "-a",
        "loglevel=3",
        "--blk-disk",
        f"d={image}",
        "--script-sh",
        script,
    ]
    begun = time.monotonic()
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        assert child.stdout is not None
        said = []
        for line in child.stdout:
            said.append(line.decode(errors="replace"))
            if "4096 bytes" in said[-1]:  # dd's own report
                took = time.monotonic() - begun
                child.terminate()
                return took
    raise SystemExit(f"virtme-run read nothing: {''.join(said)[-2000:]}")


def main() -> None:
    """Run pairs in random order until they are done or the time is over."""
    program, kernel, modules = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    pairs = int(sys.argv[4]) if len(sys.argv) > 4 else 5
    seconds = float(sys.argv[5]) if len(sys.argv) > 5 else 600.0
    chance, ended = random.Random(1), time.monotonic() + seconds
    found: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory, Warden(f"boot-{os.getpid()}") as warden:
        image = Path(directory) / "image.raw"
        image.write_bytes(os.urandom(SIZE))
        sources = find_sources(cache_directory() / "packages", kernel=kernel, modules=modules)
        appliance, _ = appliance_for(sources, Path(directory) / "appliances")
        while len(found) < pairs and time.monotonic() < ended:
            both = {}
            for who in chance.sample(("ours", "theirs"), 2):
                both[who] = (
                    ours(appliance, image, warden) if who == "ours" else theirs(program, kernel, modules, image)
                )
            found.append((both["ours"], both["theirs"]))
            print(f"virtune {both['ours']:.2f} s  virtme-ng {both['theirs']:.2f} s", flush=True)
    ratio = statistics.median(one / other for one, other in found)
    medians = [statistics.median(side) for side in zip(*found, strict=True)]
    print(
        f"\n{len(found)} pairs, median: virtune {medians[0]:.2f} s, virtme-ng {medians[1]:.2f} s, ratio {ratio:.2f}"
    )


main()
