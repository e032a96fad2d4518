# SPDX-License-Identifier: Apache-2.0
"""A host's facts: of recorded machines, whatever is odd about them, and of the one we run on."""

import os
import subprocess
import sys
import time
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.probe.machines import unpack

from virtune.model.facts import ClaimKind, HostFacts, IdleState, Unknown
from virtune.probe.cpu import cpu_facts, parse_list
from virtune.probe.host import (
    busy_facts,
    disk_facts,
    host_facts,
    kvm_facts,
    memory_facts,
    scratch_facts,
    virtualization_facts,
)
from virtune.probe.kernel import cpu_limit, cpu_stat_files, disk_limits, group_cpus, io_limits, kernel_facts
from virtune.probe.programs import read_accelerators, read_banner, read_drivers, read_engines, read_exports
from virtune.probe.tree import mounts

GIB = 1024**3


def unknowns(value: object) -> list[Unknown]:
    if isinstance(value, Unknown):
        return [value]
    if is_dataclass(value):
        return [one for field in fields(value) for one in unknowns(getattr(value, field.name))]
    return [one for member in value for one in unknowns(member)] if isinstance(value, tuple) else []


def test_a_small_virtual_machine(tmp_path: Path) -> None:
    facts = host_facts("/var/tmp/virtune", unpack("small-vm", tmp_path))
    assert facts.kernel.release == "6.18.44"
    assert (facts.kernel.aio_limit, facts.kernel.io_uring.disabled) == (65536, 0)
    assert (facts.cpu.model, facts.cpu.online, facts.cpu.cores, facts.cpu.sockets) == ("AMD EPYC", 2, 2, 1)
    assert isinstance(facts.cpu.governors, Unknown)
    assert facts.virtualization.hypervisor == "unnamed"  # the processor's flag is all there is
    (disk,) = facts.disks
    assert (disk.device.name, disk.device.driver, disk.device.size_bytes) == ("vda", "virtio_blk", 256 * GIB)
    assert [claim.kind for claim in disk.claims] == [ClaimKind.MOUNTED]
    assert facts.scratch.backing.names == ("vda",)
    assert (facts.limits.cpus, facts.limits.io) == (None, ())


def test_two_sockets_with_everything_set_against_disk_io(tmp_path: Path) -> None:
    root = unpack("two-sockets", tmp_path)
    cpu, kernel, kvm = cpu_facts(root), kernel_facts(root), kvm_facts(root)
    assert (cpu.online, cpu.cores, cpu.sockets, cpu.smt, cpu.turbo) == (8, 4, 2, True, True)
    assert (cpu.governors, cpu.frequency_driver) == (("performance", "powersave"), "intel_pstate")
    assert cpu.deepest_idle == IdleState(name="C6", latency_us=170)  # C10 is disabled
    assert (cpu.vulnerable, cpu.mitigated) == (("mds",), ("meltdown",))
    assert isinstance(cpu.numa, tuple)
    assert [(node.node, node.cpus, node.memory_bytes) for node in cpu.numa] == [
        (0, "0,2,4,6", 131900524 * 1024),
        (1, "1,3,5,7", 132109632 * 1024),
    ]
    assert (kernel.io_uring.built, kernel.io_uring.disabled) == (False, 2)
    assert kernel.arguments == ("isolcpus=4-7", "intel_idle.max_cstate=6", "mitigations=off")
    assert (kernel.transparent_hugepages, kernel.ksm_runs) == ("always", True)
    assert (kernel.clocksource, kernel.clocksources) == ("hpet", ("hpet", "acpi_pm"))
    assert (kvm.exists, kvm.nested, kvm.halt_poll_ns) == (False, True, 0)
    assert virtualization_facts(root).hypervisor == "none"


def test_memory_and_how_busy_it_is(tmp_path: Path) -> None:
    root = unpack("two-sockets", tmp_path)
    memory, busy = memory_facts(root), busy_facts(root)
    assert memory.total_bytes == 264010156 * 1024
    assert memory.swap_used_bytes == 4194302 * 1024
    assert memory.hugepages_bytes == 1024 * 2048 * 1024
    assert busy.load_1min == 9.5
    assert isinstance(busy.pressure, tuple)
    assert [(one.resource, one.some_percent) for one in busy.pressure][:2] == [("cpu", 31.5), ("io", 7.0)]
    assert isinstance(busy.pressure[1].full_percent, Unknown)
    assert isinstance(busy.pressure[2].some_percent, Unknown)


def test_limits_of_either_version_of_control_groups(tmp_path: Path) -> None:
    two = unpack("two-sockets", tmp_path / "2")
    assert cpu_limit(two) == 1.5
    assert io_limits(two) == ("8:0 rbps=1048576 wbps=max riops=max wiops=max",)
    assert cpu_stat_files(two) == ("/sys/fs/cgroup/user.slice/cpu.stat",)
    one = unpack("cgroup-v1", tmp_path / "1")
    assert cpu_limit(one) == 0.5
    assert io_limits(one) == ("8:0 read_bps=1048576",)
    assert cpu_stat_files(one) == ("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.stat",)
    assert virtualization_facts(one).container == "docker"
    assert isinstance(cpu_limit(tmp_path / "nothing"), Unknown)


@pytest.mark.parametrize(
    ("mount", "line", "name"),
    [
        ("cgroup2 cgroup2 rw", "0::", "cpuset.cpus.effective"),
        ("cgroup cgroup rw,cpuset", "3:cpuset:", "cpuset.effective_cpus"),
    ],
    ids=["2", "1"],
)
def test_the_cpus_of_a_vm_are_those_of_its_group_and_no_pin(tmp_path: Path, mount: str, line: str, name: str) -> None:
    for path, text in {
        "proc/self/mountinfo": f"30 1 0:26 / /sys/fs/cgroup rw - {mount}\n",
        "proc/7/cgroup": f"{line}/machine/vm/emulator\n",
        f"sys/fs/cgroup/machine/vm/emulator/{name}": "1\n",
        f"sys/fs/cgroup/machine/vm/{name}": "0-3,8\n",
        f"sys/fs/cgroup/{name}": "0-15\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert group_cpus(7, tmp_path) == "0-3,8"
    assert group_cpus(8, tmp_path) is None


def test_limits_of_another_process_are_those_of_its_groups_and_all_above(tmp_path: Path) -> None:
    for path, text in {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "proc/77/cgroup": "0::/machine.slice/vm1/libvirt\n",
        "sys/class/block/sda/dev": "8:0\n",
        "sys/class/block/sdb/dev": "8:16\n",
        "sys/fs/cgroup/machine.slice/io.max": "8:0 rbps=5000 wbps=max riops=70 wiops=max\n",
        "sys/fs/cgroup/machine.slice/vm1/io.max": "8:0 rbps=9000 wbps=200 riops=max wiops=max\n8:16 riops=1\n",
        "sys/fs/cgroup/machine.slice/vm1/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/machine.slice/vm1/cpu.stat": "throttled_usec 1\n",
        "sys/fs/cgroup/machine.slice/vm1/libvirt/vcpu0/cpu.stat": "throttled_usec 2\n",
        "proc/77/task/77/cgroup": "0::/machine.slice/vm1/libvirt\n",
        "proc/77/task/78/cgroup": "0::/machine.slice/vm1/libvirt/vcpu0\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert disk_limits(["sda"], tmp_path, pid=77) == {"read.bps": 5000.0, "write.bps": 200.0, "read.iops": 70.0}
    assert disk_limits(["sdb"], tmp_path, pid=77) == {"read.iops": 1.0}
    assert disk_limits([], tmp_path, pid=77) == disk_limits(["sda"], tmp_path) == {}
    groups = [one.removeprefix("/sys/fs/cgroup/machine.slice/vm1/") for one in cpu_stat_files(tmp_path, pid=77)]
    assert sorted(groups) == ["cpu.stat", "libvirt/vcpu0/cpu.stat"], "a vCPU has a group of its own"
    assert cpu_stat_files(tmp_path) == ()
    one = unpack("cgroup-v1", tmp_path / "1")
    (one / "proc/77/task/77").mkdir(parents=True)
    (one / "proc/77/task/77/cgroup").write_text((one / "proc/self/cgroup").read_text())
    assert "/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.stat" in cpu_stat_files(one, pid=77)
    (one / "sys/class/block/sdz").mkdir(parents=True)
    (one / "sys/class/block/sdz/dev").write_text("8:0\n")
    assert disk_limits(["sdz"], one) == {"read.bps": 1048576.0}


def test_a_machine_that_shows_nothing_is_unknown_throughout(tmp_path: Path) -> None:
    facts = host_facts("/scratch", tmp_path)
    found = unknowns(facts)
    assert len(found) > 50
    assert all(one.because for one in found)
    assert facts.disks == ()


@pytest.mark.parametrize("kernel", ["btrfs-on-two-disks", "cgroup-v1", "container", "loop-on-ext4", "lvm-on-raid"])
def test_every_recorded_machine_is_read_to_its_end(kernel: str, tmp_path: Path) -> None:
    assert isinstance(host_facts("/var/lib/images", unpack(kernel, tmp_path)), HostFacts)


def test_this_machine_is_probed_in_time_and_agrees_with_python(tmp_path: Path) -> None:
    begin = time.process_time()
    facts = host_facts(tmp_path)
    assert time.process_time() - begin < 2
    assert facts.kernel.release == os.uname().release
    assert facts.cpu.online == len(parse_list(Path("/sys/devices/system/cpu/online").read_text().strip()))
    assert isinstance(facts.memory.total_bytes, int)
    assert abs(facts.memory.total_bytes - os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) < GIB
    assert facts.kvm.exists == Path("/dev/kvm").exists()
    assert os.listdir(tmp_path) == []  # O_DIRECT was tried, and nothing is left


def python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_io_uring_works_where_nothing_forbids_it() -> None:
    ring = kernel_facts().io_uring
    if ring.built is True and ring.disabled == 0:
        assert ring.usable is True


SECCOMP = """
import ctypes, struct
from virtune.probe.kernel import kernel_facts
# load the call's number; if it is 425 (io_uring_setup) return EPERM, else allow
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
filter = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in code))
program = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(filter)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0
ring = kernel_facts().io_uring
print(ring.built, ring.usable)
"""


def test_io_uring_that_a_container_forbids_is_found_out() -> None:
    """Container runtimes filter io_uring: it is built in and not switched off, and only trying tells."""
    built = kernel_facts().io_uring.built
    assert python(SECCOMP) == f"{built} False"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give its rights up")
@pytest.mark.skipif(not Path("/dev/kvm").exists(), reason="needs /dev/kvm (modprobe kvm_intel or kvm_amd)")
def test_a_kvm_that_is_not_ours_to_open_is_found_out() -> None:
    program = (
        "import os\n"
        "from virtune.probe.host import kvm_facts\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "facts = kvm_facts(); print(facts.exists, facts.opens, type(facts.creates_vm).__name__)"
    )
    for_all = Path("/dev/kvm").stat().st_mode & 0o006 == 0o006
    assert python(program) == ("True True bool" if for_all else "True False Unknown")


def test_scratch_in_memory_and_scratch_that_is_not_there_yet(tmp_path: Path) -> None:
    assert scratch_facts("/dev/shm").backing.filesystem == "tmpfs"
    here, below = scratch_facts(tmp_path), scratch_facts(tmp_path / "not" / "yet")
    assert here.size_bytes == below.size_bytes
    assert here.direct_io == below.direct_io
    assert not (tmp_path / "not").exists()


def test_a_scratch_that_may_not_be_written_to_says_so() -> None:
    facts = scratch_facts("/proc/self")
    assert isinstance(facts.direct_io, Unknown)
    assert "no file could be made" in facts.direct_io.because


def test_disks_of_this_machine_have_names_of_the_kernel() -> None:
    names = [disk.device.name for disk in disk_facts()]
    assert set(names) <= set(os.listdir("/sys/block"))


QSD_HELP = """  --export [type=]nbd,id=<id>,node-name=<node-name>[,name=<export-name>]
  --export [type=]vhost-user-blk,id=<id>,node-name=<node-name>,
  --export [type=]vhost-user-blk,id=<id>,node-name=<node-name>,
  --export [type=]vduse-blk,id=<id>,node-name=<node-name>
"""


def test_what_qemu_and_fio_say_of_themselves() -> None:
    assert read_exports(QSD_HELP) == ("nbd", "vhost-user-blk", "vduse-blk")
    assert read_drivers("x\nSupported formats: blkdebug raw qcow2\n\nSee <y>\n") == ("blkdebug", "raw", "qcow2")
    assert read_accelerators("Accelerators supported in QEMU binary:\ntcg\nkvm\n") == ("tcg", "kvm")
    assert read_engines("Available IO engines:\n\tsync\n\tlibaio (dynamic)\n\n") == ("sync", "libaio")
    assert read_banner("qemu-img version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright") == (
        "7.2.22",
        "Debian 1:7.2+dfsg-7+deb12u18+b3",
    )
    assert read_banner("QEMU emulator version 11.0.50 (v11.0.0-12-gabcdef-dirty)")[0] == "11.0.50"
    assert read_banner("QEMU emulator version 10.1.0\n") == ("10.1.0", Unknown("the build names no package"))
    assert isinstance(read_banner("nonsense")[0], Unknown)


@given(st.text())
def test_readers_take_any_text(text: str) -> None:
    for read in (read_exports, read_drivers, read_accelerators, read_engines):
        assert isinstance(read(text), tuple)
    read_banner(text)


@given(st.sets(st.integers(0, 300), min_size=1))
def test_lists_of_cpus_are_read_back(cpus: set[int]) -> None:
    ordered = sorted(cpus)
    parts, start = [], ordered[0]
    for here, following in zip(ordered, [*ordered[1:], -1], strict=True):
        if following != here + 1:
            parts.append(str(start) if start == here else f"{start}-{here}")
            start = following
    assert parse_list(",".join(parts)) == tuple(ordered)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=6))
def test_a_mount_table_of_any_text_is_read(lines: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "proc/self").mkdir(parents=True)
        good = "22 1 8:2 / /a\\040b rw shared:1 master:2 - ext4 /dev/sda2 rw"
        (root / "proc/self/mountinfo").write_text("\n".join([*(line.replace("\n", " ") for line in lines), good]))
        assert mounts(root)[-1].point == "/a b"
