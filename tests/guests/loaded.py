# SPDX-License-Identifier: Apache-2.0
"""A QEMU started by hand, whose guest loads its disk until it ends."""

import contextlib
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import bare_guest

from virtune import shell
from virtune.bench.qemu.load import Line
from virtune.bench.qemu.machine import PROGRAM
from virtune.dialects.qemu.guest import SLOTS, GuestMachine, machine_argv
from virtune.model.stack import Machine

DEPTH = 8

JOB = f"""[load]
ioengine=virtio-blk
filename=disk0
rw=randread
bs=4k
iodepth={DEPTH}
runtime=600
time_based=1
"""


@dataclass
class Loaded:
    """A QEMU whose guest loads its disk: where its monitor listens, and its process."""

    socket: Path
    pid: int


def null(nanoseconds: int, name: str = "n0") -> list[str]:
    """A disk that answers after so long."""
    return ["-blockdev", f"null-co,node-name={name},size={64 * 1024**2},read-zeroes=on,latency-ns={nanoseconds}"]


@contextlib.contextmanager
def loading(tmp_path: Path, nodes: Sequence[str], job: str = JOB, device: str = "") -> Iterator[Loaded]:
    """A guest without an operating system under TCG, which loads its disk, the node `n0`, until it ends. `device` are
    further options of the disk's device.
    """
    listens, console = tmp_path / "vm.qmp", tmp_path / "console"
    with contextlib.ExitStack() as ends:
        warden = ends.enter_context(shell.Warden("top"))
        line, monitor = (socket.socketpair() for _ in range(2))
        for pair in (line, monitor):
            ends.enter_context(pair[0])
        machine = GuestMachine(
            kernel=str(bare_guest()), initramfs="", console=str(console), channels=(line[1].fileno(),),
            monitor=monitor[1].fileno(), kvm=False, host_cpu="max", vcpus=1, asked=Machine(system="bare"), first=(),
        )  # fmt: skip
        argv = [*machine_argv(shell.find(PROGRAM), machine), "-qmp", f"unix:{listens},server=on,wait=off"]
        argv += [*nodes, "-device", f"virtio-blk-pci,id=data,drive=n0,bus={SLOTS[0]}{device}"]
        keep = (line[1].fileno(), monitor[1].fileno())
        process = ends.enter_context(warden.running(argv, name="top", keep=keep))
        for pair in (line, monitor):
            pair[1].close()
        guest = Line(line[0])
        assert guest.receive(60) is not None, "it did not come up"
        guest.ask("job", job.encode(), expect="armed", timeout_seconds=60)
        guest.ask("go", b"60000 0", expect="began", timeout_seconds=60)
        yield Loaded(listens, process.pid)
