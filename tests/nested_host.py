# SPDX-License-Identifier: Apache-2.0
"""A host with an IOMMU and two NVMe drives: a guest whose root is this machine's own, read-only, so that the same
programs are there. A script runs in it, as root, and what it writes into `out` is here.
"""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from virtune import shell
from virtune.bench.appliance.build import ArchiveEntry, archive, file, with_dependencies
from virtune.bench.appliance.sources import GENERAL_KERNEL, Sources, find_sources

MODULES = ("virtio_pci", "9pnet_virtio", "9p", "nvme", "vfio_iommu_type1", "vfio_pci")
VOLUMES = ("crc32c_generic", "dm_thin_pool")
"""What LVM needs of the kernel; nothing asks for the checksum by name."""

BACK_ENDS = (
    "crc32c_generic",
    "configfs",
    "nvmet_tcp",
    "nvme_tcp",
    "dm_crypt",
    "xts",
    "ecb",
    "aes_generic",
    "raid1",
    "dm_raid",
)
"""What NVMe over TCP to a target of its own, dm-crypt and a mirror by md need of the kernel."""

INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc none /proc; /bin/busybox mount -t sysfs none /sys; /bin/busybox mount -t devtmpfs none /dev
for m in {modules}; do /bin/busybox insmod /m/$m.ko; done
options=trans=virtio,version=9p2000.L,msize=512000
/bin/busybox mount -t 9p -o $options,cache=loose,ro host /host
for name in proc sys dev; do /bin/busybox mount --bind /$name /host/$name; done
/bin/busybox mount -t tmpfs none /host/run
/bin/busybox mkdir -p /host/run/out /host/run/tmp /host/dev/shm
/bin/busybox mount -t tmpfs none /host/dev/shm
/bin/busybox mount -t 9p -o $options out /host/run/out
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run/home TMPDIR=/run/tmp {environment}
/bin/busybox chroot /host /bin/sh /run/out/script >/host/run/out/log 2>&1
/bin/busybox sync; /bin/busybox poweroff -f
"""


@dataclass(frozen=True)
class NestedHost:
    """What such a host is started with; `drives` are files."""

    place: Path
    drives: tuple[Path, ...]
    modules: tuple[str, ...] = VOLUMES
    seconds: float = 1800

    def run(self, script: str, environment: str) -> str:
        """Run a script in the host until it ends; returns what it printed."""
        out = self.place / "out"
        out.mkdir(exist_ok=True)
        (out / "script").write_text(script)
        sources = find_sources(shell.cache_directory() / "packages", package=GENERAL_KERNEL)
        initramfs = self.place / "initramfs"
        initramfs.write_bytes(
            archive(entries(sources, environment, self.modules), directories=("dev", "proc", "sys", "host"))
        )
        words = (
            "console=ttyS0 quiet panic=-1 intel_iommu=on mitigations=off no_timer_check norandmaps clocksource=hpet"
        )
        argv = [shell.find("qemu-system-x86_64"), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
        argv += ["-M", "q35", "-cpu", "max", "-smp", "2", "-m", "2G", "-accel", "tcg,thread=multi"]
        argv += ["-kernel", str(sources.kernel), "-initrd", str(initramfs), "-append", words]
        argv += ["-serial", f"file:{self.place / 'console'}", "-device", "intel-iommu,intremap=on,caching-mode=on"]
        shares = (("host", "/", ",readonly=on,multidevs=remap"), ("out", str(out), ""))
        for name, path, more in shares:
            argv += ["-fsdev", f"local,id={name},path={path},security_model=none{more}"]
            argv += ["-device", f"virtio-9p-pci,fsdev={name},mount_tag={name}"]
        for number, drive in enumerate(self.drives, 1):
            argv += ["-device", f"pcie-root-port,id=port{number},chassis={number},slot={number}"]
            argv += ["-blockdev", f"driver=file,node-name=file{number},filename={drive}"]
            argv += ["-device", f"nvme,bus=port{number},drive=file{number},serial=DRIVE{number}"]
        subprocess.run(argv, timeout=self.seconds, check=True)
        return (out / "log").read_text()


def entries(sources: Sources, environment: str, more: tuple[str, ...]) -> list[ArchiveEntry]:
    """What the host begins with: its first process, busybox, and the modules without which it sees nothing."""
    contents, orders = with_dependencies(sources, (*MODULES, *more))
    modules = {name: contents[name] for order in orders.values() for name in order}
    init = INIT.format(modules=" ".join(modules), environment=environment)
    return [
        file("init", init.encode(), program=True),
        file("bin/busybox", sources.busybox.read_bytes(), program=True),
        *(file(f"m/{name}.ko", content) for name, content in modules.items()),
    ]


def environment_of(**more: str) -> str:
    """The environment in which the same virtune runs there."""
    import virtune

    said = {
        "PYTHONPATH": str(Path(virtune.__file__).parents[1]),
        "LC_ALL": os.environ.get("LC_ALL", "C.UTF-8"),
        **more,
    }
    return " ".join(f"{name}='{value}'" for name, value in said.items())


def parts(log: str) -> dict[str, str]:
    """What each step of the script printed, by its name."""
    found = re.split(r"^== (\w+)\n", log, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))
