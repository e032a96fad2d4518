# SPDX-License-Identifier: Apache-2.0
"""Records this machine as a capture: `python tests/captures/record.py NAME "STORY"` writes NAME/tree.json.

Only files that probes read are taken. Serials, addresses and names of mounts beyond the disks' own are left out.
"""

import contextlib
import json
import os
import re
import sys
from pathlib import Path

FILES = [
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/loadavg",
    "/proc/swaps",
    "/proc/pressure/*",
    "/proc/self/cgroup",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/io_uring_disabled",
    "/proc/sys/fs/aio-*",
    "/proc/sys/vm/dirty_*",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/ksm/run",
    "/sys/devices/system/clocksource/clocksource0/*_clocksource",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/smt/active",
    "/sys/devices/system/cpu/cpu*/topology/*_id",
    "/sys/devices/system/cpu/cpu0/cpuidle/state*/*",
    "/sys/devices/system/cpu/cpuidle/current_driver",
    "/sys/devices/system/cpu/cpufreq/*",
    "/sys/devices/system/cpu/cpufreq/policy*/scaling_*",
    "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "/sys/devices/system/cpu/vulnerabilities/*",
    "/sys/devices/system/node/node*/cpulist",
    "/sys/devices/system/node/node*/meminfo",
    "/sys/module/kvm*/parameters/nested",
    "/sys/module/kvm/parameters/halt_poll_ns",
]
DISK = ["dev", "size", "ro", "partition", "queue/*", "mq/*/cpu_list", "dm/name", "md/level", "loop/backing_file"]
DEVICE = ["model", "name", "firmware_rev", "rev", "queue_depth"]
KEPT = re.compile(r"^(processor|flags|model name|physical id|core id|siblings|cpu cores)\b")


def main() -> None:
    """Read what probes read and write it down."""
    name, story = sys.argv[1:]
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    for pattern in FILES:
        for path in sorted(Path("/").glob(pattern.lstrip("/"))):
            take(path, files)
    files["/proc/cpuinfo"] = scrub_cpuinfo(files["/proc/cpuinfo"])
    files["/proc/self/cgroup"] = scrub_groups(files["/proc/self/cgroup"])
    files["/proc/sys/kernel/osrelease"] = files["/proc/sys/kernel/osrelease"].partition("-")[0]
    for place in sorted(Path("/sys/class/block").iterdir()):
        if (place / "size").read_text().strip() != "0":
            take_disk(place, files, links)
    files["/proc/self/mountinfo"] = scrub_mounts(Path("/proc/self/mountinfo").read_text())
    target = Path(__file__).parent / name / "tree.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({"story": story, "files": files, "links": links}, indent=1, sort_keys=True) + "\n")


def take(path: Path, files: dict[str, str]) -> None:
    """Take a file that can be read; directories and what refuses are left out."""
    with contextlib.suppress(OSError):
        files[str(path)] = path.read_text(errors="replace").strip()


def take_disk(place: Path, files: dict[str, str], links: dict[str, str]) -> None:
    """Take a block device: the links that lead to it, its queue, what it stands on, its driver."""
    home = place.resolve()
    links[str(place)] = os.readlink(place)
    number = Path("/sys/dev/block") / (home / "dev").read_text().strip()
    links[str(number)] = os.readlink(number)
    whole = Path("/sys/block") / place.name
    if whole.is_symlink():
        links[str(whole)] = os.readlink(whole)
    for pattern in DISK:
        for path in sorted(home.glob(pattern)):
            take(path, files)
    for link in sorted([*home.glob("slaves/*"), *home.glob("holders/*"), *home.glob("device")]):
        links[str(link)] = os.readlink(link)
    device = (home / "device").resolve()
    for name in DEVICE:
        take(device / name, files)
    driver = device / "driver"
    if driver.is_symlink():
        links[str(driver)] = os.readlink(driver)
        files[f"{driver.resolve()}/bind"] = ""


def scrub_cpuinfo(text: str) -> str:
    """Keep of every processor what probes read."""
    blocks = text.split("\n\n")
    return "\n\n".join("\n".join(line for line in block.splitlines() if KEPT.match(line)) for block in blocks)


def scrub_groups(text: str) -> str:
    """Keep the lines of the hierarchies that limit CPU and I/O."""
    return "\n".join(line for line in text.splitlines() if line.split(":")[1] in ("", "cpu", "cpu,cpuacct", "blkio"))


def scrub_mounts(text: str) -> str:
    """Keep mounts of block devices, of tmpfs below /dev, and of control groups."""
    kept = []
    for line in text.splitlines():
        words = line.split()
        kind = words[words.index("-") + 1]
        if not words[2].startswith("0:") or kind in ("proc", "sysfs", "btrfs", "cgroup", "cgroup2", "overlay", "zfs"):
            kept.append(line)
    return "\n".join(kept)


if __name__ == "__main__":
    main()
