# SPDX-License-Identifier: Apache-2.0
"""A tree laid out as the kernel's /sys and /dev, with PCI devices, NVMe drives and IOMMU groups, and what the kernel
does when a driver is unbound or looked for: threads that read the same files, which are pipes here.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

DRIVE, NVME_CLASS = "0000:01:00.0", "0x010802"
DRIVERS = ("nvme", "vfio-pci", "ahci")


class PlantedPci:
    """The tree below `root`; `drives` it like a kernel while `running`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bus = root / "sys/bus/pci"
        self.seen: list[str] = []

    def device(self, address: str, *, kind: str = NVME_CLASS, driver: str = "nvme", group: str = "7") -> Path:
        """Plant a PCI device in an IOMMU group."""
        place = self.bus / "devices" / address
        place.mkdir(parents=True)
        (place / "class").write_text(f"{kind}\n")
        (place / "driver_override").write_text("(null)\n")
        if driver:
            (self.bus / "drivers" / driver).mkdir(parents=True, exist_ok=True)
            (place / "driver").symlink_to(f"../../drivers/{driver}")
        if group:
            (place / "iommu_group").symlink_to(f"../../../../kernel/iommu_groups/{group}")
            (self.root / "sys/kernel/iommu_groups" / group / "devices" / address).mkdir(parents=True)
        return place

    def drive(
        self, address: str = DRIVE, *, number: int = 0, namespaces: int = 1, group: str = "7", driver: str = "nvme"
    ) -> Path:
        """Plant an NVMe drive with its controller `nvmeN` and its block devices."""
        place = self.device(address, group=group, driver=driver)
        controller = place / "nvme" / f"nvme{number}"
        controller.mkdir(parents=True)
        (controller / "serial").write_text("S3RIAL  \n")
        for one in range(1, namespaces + 1):
            name = f"nvme{number}n{one}"
            (controller / name).mkdir()
            (controller / name / "dev").write_text(f"259:{10 * number + one}\n")
            (controller / name / "size").write_text("2048\n")
            for listed in (f"block/{name}", f"class/block/{name}", f"dev/block/259:{10 * number + one}"):
                link = self.root / "sys" / listed
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(controller / name)
        return place

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Bind and unbind as the kernel does, while the block runs."""
        pipes = {self.bus / "drivers" / one / "unbind": self._unbind for one in DRIVERS}
        pipes[self.bus / "drivers_probe"] = self._probe
        threads = []
        for pipe, act in pipes.items():
            pipe.parent.mkdir(parents=True, exist_ok=True)
            os.mkfifo(pipe)
            threads.append(threading.Thread(target=self._serve, args=(pipe, act)))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for pipe in pipes:
                pipe.write_text("end")
            for thread in threads:
                thread.join()

    @staticmethod
    def _serve(pipe: Path, act: Callable[[str], None]) -> None:
        while (address := pipe.read_text()) != "end":
            act(address)

    def _unbind(self, address: str) -> None:
        self.seen.append(f"unbind {address}")  # before a probe can go on
        (self.bus / "devices" / address / "driver").unlink(missing_ok=True)

    def _probe(self, address: str) -> None:
        place = self.bus / "devices" / address
        override = (place / "driver_override").read_text().strip()
        while (place / "driver").is_symlink():  # the kernel ends one write before it takes the next
            time.sleep(0.005)
        self.seen.append(f"probe {address} for {override or 'any'}")
        (place / "driver").symlink_to(f"../../drivers/{override or 'nvme'}")
