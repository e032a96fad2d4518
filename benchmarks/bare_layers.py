# SPDX-License-Identifier: Apache-2.0
"""By which layers does fio in a Linux guest differ from a guest without an operating system, on the same stack?

    python -m benchmarks.bare_layers [ROUNDS] [DEPTH]

Both run under TCG, on one vCPU and a null-co of 200 us in an IOThread, and are compared in interleaved rounds of 1 s;
then each is diagnosed, and its layers are printed side by side. Where KVM runs the bare guest it is hidden from
virtune, which needs root; what virtune learns of it then is not kept.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from virtune.shell import cache_directory

STACK = ("device.iothread=io1", "disk.backend=null-co", "disk.null_latency_ns=200000", "machine.vcpus=1")
SYSTEMS = ("bare", "linux")
HIDDEN = 'mount --bind /dev/null /dev/kvm && exec "$@"'


def virtune(place: Path, *words: str) -> Any:
    """Run a verb without KVM, and return its document."""
    argv = [sys.executable, "-m", "virtune", *words, "--json", "--store", str(place / "store.sqlite")]
    if Path("/dev/kvm").exists():
        argv = ["unshare", "--mount", "sh", "-c", HIDDEN, "sh", *argv]
    ran = subprocess.run(
        argv, capture_output=True, text=True, check=False, env=os.environ | {"XDG_CACHE_HOME": str(place / "cache")}
    )
    if ran.returncode:
        sys.exit(f"virtune ended with {ran.returncode}: {ran.stderr[-2000:]}")
    return json.loads(ran.stdout)


def main() -> None:
    """Compare, diagnose, print."""
    rounds, depth = (sys.argv[1:] + ["12", "1"][len(sys.argv[1:]) :])[:2]
    with tempfile.TemporaryDirectory(prefix="virtune-layers-") as directory:
        place = Path(directory)
        cache = place / "cache" / "virtune"
        cache.mkdir(parents=True)
        for name in ("appliances", "packages"):
            (cache / name).symlink_to(cache_directory() / name)
        words = [word for one in SYSTEMS for word in ("--arm", f"{one}:guest.system={one}")]
        words += [word for one in STACK for word in ("--set", one)]
        words += ["--workload", f"rw=randread,bs=4k,iodepth={depth}", "--rounds", rounds, "--seconds", "1s"]
        words += ["--ramp", "200ms", "--span", "64M", "--scratch", str(place), "-q"]
        found = virtune(place, "compare", "--rig", "qemu", *words)
        for one in found["comparisons"]:
            how = f"{one['verdict']}, IOPS x{one['ratio']['estimate']:.2f}"
            print(f"{one['candidate']} against {one['baseline']}: {how}")
        show(virtune(place, "diagnose", "--run", "last")["disks"])


def show(disks: list[Any]) -> None:
    """Print the layers of both, and which threads of QEMU spend how much CPU time on an I/O."""
    for disk in disks:
        layers = disk["layers"]
        print(f"\n{disk['disk']}: {disk['iops']:.0f} IOPS, {layers['total_ns'] / 1e3:.1f} us in all")
        for one in layers["layers"]:
            sure = "" if one["low_ns"] is None else f"[{one['low_ns'] / 1e3:.1f}, {one['high_ns'] / 1e3:.1f}]"
            print(f"  {one['mean_ns'] / 1e3:8.1f} us {sure:20} {one['label']}")
        spent = {one["name"]: one["cpu_per_io_seconds"] or 0 for one in disk["threads"]}
        print(
            "  CPU time per I/O: "
            + ", ".join(f"{name} {value * 1e6:.0f} us" for name, value in spent.items() if value)
        )
        for reason in layers["reasons"]:
            print(f"  {reason}")


if __name__ == "__main__":
    main()
