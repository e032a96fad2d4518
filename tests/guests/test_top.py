# SPDX-License-Identifier: Apache-2.0
"""`virtune top` on a QEMU started by hand, whose guest loads its disk."""

import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tests.conftest import User, bare_guest
from tests.published import schema

from virtune import shell
from virtune.bench.guest.line import Line
from virtune.bench.qemu.machine import PROGRAM
from virtune.dialects.qemu.guest import SLOTS, GuestMachine, machine_argv
from virtune.model.machine import Machine

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]

DEVICE_NS = 2_000_000
DEPTH = 8
SAMPLED = 0.1
"""A virtqueue is sampled: latency is the mean number in flight over the rate, as uncertain as that. Once 1.94 ms were
seen for 2, beside two other tests."""

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
    """A QEMU whose guest loads its disk: where its monitor listens."""

    socket: Path


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Loaded]:
    """A guest without an operating system under TCG, which reads from a disk of a known latency until it ends."""
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
        argv += ["-blockdev", f"null-co,node-name=n0,size={64 * 1024**2},read-zeroes=on,latency-ns={DEVICE_NS}"]
        argv += ["-device", f"virtio-blk-pci,id=data,drive=n0,bus={SLOTS[0]}"]
        ends.enter_context(warden.running(argv, name="top", keep=(line[1].fileno(), monitor[1].fileno())))
        for pair in (line, monitor):
            pair[1].close()
        guest = Line(line[0])
        assert guest.receive(60) is not None, "it did not come up"
        guest.ask("job", JOB.encode(), expect="armed", timeout_seconds=60)
        guest.ask("go", b"60000 0", expect="began", timeout_seconds=60)
        yield Loaded(listens)


def test_one_interval_of_a_live_disk_is_what_was_planted(user: User, loaded: Loaded) -> None:
    found = json.loads(user.run("top", "--once", "--json", "--qmp", str(loaded.socket), "--interval", "2s").stdout)
    Draft202012Validator(schema("top")).validate(found)
    (vm,) = found["vms"]
    (disk,) = vm["disks"]
    assert (vm["vm"], disk["disk"]) == ("virtune", "data")
    assert disk["iops"] > 0
    assert disk["write"]["iops"] == 0
    assert disk["latency_ns"] >= DEVICE_NS * (1 - SAMPLED), "the device takes two milliseconds"
    assert disk["in_flight"] <= DEPTH * 1.05
    assert disk["layers"]["top"] == "ring", "its virtqueue is seen"
    assert {one["role"] for one in vm["threads"]} >= {"vcpu", "main"}
    assert disk["cpu_per_io_ns"] > 0
    recorded_and_replayed(user, loaded)


def recorded_and_replayed(user: User, loaded: Loaded) -> None:
    """The same disk, recorded: every interval comes again."""
    kept = user.home / "vm.jsonl"
    words = ("--record", str(kept), "--count", "2", "--interval", "500ms")
    user.run("top", "--qmp", str(loaded.socket), *words)
    rows = user.run("top", "--replay", str(kept), "--csv").stdout.splitlines()
    assert len(rows) == 3, "the heads and two intervals"
    (vm,) = json.loads(user.run("top", "--replay", str(kept), "--once", "--json").stdout)["vms"]
    (disk,) = vm["disks"]
    assert disk["iops"] > 0
    assert disk["latency_ns"] >= DEVICE_NS * (1 - SAMPLED)
