# SPDX-License-Identifier: Apache-2.0
"""Changes of Proxmox VMs by `qm set`, with a stand-in for it (standin_qm.py): shown, journalled, checked, undone."""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.conftest import User
from tests.killed import dies
from tests.libvirt.dying import DyingJournal

from virtune.apply.journal import Journal
from virtune.apply.proxmox import ProxmoxVm
from virtune.dialects.proxmox import PROXMOX
from virtune.flows.domains.advise import read_turn
from virtune.model.domain import SettingChange
from virtune.model.errors import PreconditionError
from virtune.shell import run as run_command

CONFIG = """#the shop's database
agent: 1
boot: order=scsi0
cores: 4
memory: 8192
name: db
ostype: l26
scsi0: local-lvm:vm-101-disk-0,cache=writeback,iops=500,size=32G
scsi1: local-lvm:vm-101-disk-1,size=100G
scsihw: virtio-scsi-pci
smbios1: uuid=5a0e0b3c-98f5-4c1e-9c0a-6f9e2d8e6f10

[before-upgrade]
agent: 1
cores: 2
scsi0: local-lvm:vm-101-disk-0,cache=unsafe,size=32G
snaptime: 1700000000
"""
TURNS = ("--set", "disk.cache@scsi0=none", "--set", "device.scsi_controller=virtio-scsi-single", "--yes")


class Node:
    """A directory with a VM's configuration, and a `qm` that is the stand-in."""

    def __init__(self, home: Path, user: User) -> None:
        self.conf = home / "101.conf"
        self.conf.write_text(CONFIG)
        programs = home / "bin"
        programs.mkdir()
        shutil.copy(Path(__file__).with_name("standin_qm.py"), programs / "qm")
        (programs / "qm").chmod(0o755)
        self.path = f"{programs}:{os.environ['PATH']}"
        user.env |= {"QM_DIR": str(home), "VIRTUNE_PROXMOX": str(home), "PATH": self.path}
        self._user = user

    def run(self, *words: str, status: int = 0) -> str:
        ran = self._user.run(*words, path=self.path, status=status)
        assert "libvirt" not in ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    def starts(self) -> None:
        self.conf.with_suffix(".running").touch()


@pytest.fixture
def node(tmp_path: Path, user: User, monkeypatch: pytest.MonkeyPatch) -> Node:
    home = tmp_path / "node"
    home.mkdir()
    found = Node(home, user)
    monkeypatch.setenv("QM_DIR", str(home))
    monkeypatch.setenv("VIRTUNE_PROXMOX", str(home))
    monkeypatch.setenv("PATH", found.path)
    return found


@pytest.mark.parametrize("runs", [False, True], ids=["off", "running"])
def test_a_change_is_shown_made_and_undone_byte_for_byte(node: Node, runs: bool) -> None:
    if runs:
        node.starts()
    said = node.run("apply", str(node.conf), *TURNS)
    assert "disk.cache@scsi0 = none" in said
    assert "-scsihw: virtio-scsi-pci\n+scsihw: virtio-scsi-single" in said
    after = node.conf.read_text()
    assert after.count("cache=none") == 1
    assert ("[PENDING]" in after) is runs
    assert ("what `qm pending` shows is in effect after a shutdown and start" in said) is runs
    assert after.partition("[before-upgrade]")[2] == CONFIG.partition("[before-upgrade]")[2]
    assert "nothing to change" in node.run("apply", str(node.conf), *TURNS)
    assert "unchanged since" in node.run("undo", "last", "--show")
    assert "db is as it was before" in node.run("undo", "last")
    assert node.conf.read_text() == CONFIG


def test_a_limit_is_lifted_at_once_and_what_was_pending_stays_so(node: Node) -> None:
    pending = CONFIG.replace("\n[before", "\n[PENDING]\ncores: 8\n\n[before")
    node.conf.write_text(pending)
    node.starts()
    node.run("apply", str(node.conf), "--set", "disk.throttle_iops@scsi0=", "--yes")
    assert node.conf.read_text() == pending.replace(",iops=500", "")
    node.run("undo", "last")
    assert node.conf.read_text() == pending


def test_what_waits_when_it_is_undone_after_a_start_is_said(node: Node) -> None:
    node.starts()
    node.run("apply", str(node.conf), *TURNS)
    running = node.conf.read_text().replace("\n[PENDING]\n", "\n")  # what a start makes of it
    head, _, snapshots = running.partition("\n[before")
    lines = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
    node.conf.write_text(
        "#the shop's database\n" + "".join(f"{k}: {lines[k]}\n" for k in sorted(lines)) + "\n[before" + snapshots
    )
    assert "it runs as changed until it is shut down and started" in node.run("undo", "last")
    assert "[PENDING]\nscsi0: local-lvm:vm-101-disk-0,cache=writeback,iops=500,size=32G\nscsihw: virtio-scsi-pci" in (
        node.conf.read_text()
    )


def test_a_lock_and_a_foreign_change_are_respected(node: Node) -> None:
    locked = CONFIG.replace("memory:", "lock: backup\nmemory:")
    node.conf.write_text(locked)
    assert "VM 101 is locked: backup" in node.run("apply", str(node.conf), *TURNS, status=3)
    assert node.conf.read_text() == locked
    node.conf.write_text(CONFIG)
    node.run("apply", str(node.conf), *TURNS)
    foreign = node.conf.read_text().replace("cores: 4", "cores: 6")
    node.conf.write_text(foreign)
    assert "has been changed since by somebody else" in node.run("undo", "last", status=3)
    assert node.conf.read_text() == foreign
    node.run("undo", "last", "--anyway")
    assert node.conf.read_text() == CONFIG


def test_what_proxmox_writes_otherwise_is_put_back(node: Node, user: User) -> None:
    user.env["QM_WRITES_ELSE"] = "1"
    said = node.run("apply", str(node.conf), *TURNS, status=3)
    assert "Proxmox made something else of it: scsi0" in said
    assert "db is as it was before" in said
    assert node.conf.read_text() == CONFIG


@pytest.mark.first
def test_fix_lifts_a_limit_that_is_asked_for_and_measures_it_again(node: Node, tmp_path: Path) -> None:
    quick = ("--rig", "storage-daemon", "--rounds", "24", "--seconds", "100ms", "--ramp", "0", "--span", "16M")
    said = node.run("fix", f"{node.conf}:scsi0", "--scratch", str(tmp_path), "--also", "R47", "--yes", *quick)
    assert "iops=500" not in node.conf.read_text()
    assert "measured again: scsi0 is better than it was" in said
    changed, once = node.conf.read_text(), ("--rounds", "1", "--dry-run")
    words = ("fix", f"{node.conf}:scsi0", "--scratch", str(tmp_path), *quick, *once)
    assert "left alone: R47: it finds nothing to change at scsi0" in node.run(*words, "--also", "R47")
    assert "there is no rule 'R999'" in node.run(*words, "--also", "R999", status=2)
    assert node.conf.read_text() == changed
    node.run("undo", "last")
    assert node.conf.read_text() == CONFIG


@pytest.fixture
def slower(node: Node, tmp_path: Path) -> None:
    """Have the storage daemon serve the VM's own engine slowly: what is faster at first is slower afterwards."""
    source, library = Path(__file__).parents[1] / "bench" / "slow_engine.c", tmp_path / "slow.so"
    run_command(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], timeout_seconds=60)
    shim = node.conf.parent / "bin" / "qemu-storage-daemon"
    shim.write_text(
        f"#!/bin/sh\ngrep -q aio=threads {node.conf} && SLOW=threads || SLOW=io_uring\nexport SLOW\n"
        f'LD_PRELOAD={library} exec {shutil.which("qemu-storage-daemon")} "$@"\n'
    )
    shim.chmod(0o755)


@pytest.mark.first
@pytest.mark.parametrize(("cache", "kept"), [("none", "none"), ("unsafe", "none")])
@pytest.mark.usefixtures("slower")
def test_fix_puts_back_what_is_worse_and_keeps_what_an_error_asked_for(
    cache: str, kept: str, node: Node, tmp_path: Path
) -> None:
    """Measured beside the disk as it is, another engine is better; once the VM has it, it is worse."""
    config = CONFIG.replace(",iops=500", "").replace("cache=writeback", "aio=threads,cache=CACHE", 1)
    node.conf.write_text(config.replace("CACHE", cache))
    quick = ("--rig", "storage-daemon", "--rounds", "24", "--seconds", "100ms", "--ramp", "0", "--span", "16M")
    said = node.run("fix", f"{node.conf}:scsi0", "--scratch", str(tmp_path), "--yes", *quick, status=4)
    assert "disk.aio@scsi0 = (removed)" in said  # Proxmox VE takes io_uring by itself
    assert "measured again: scsi0 is worse than it was" in said
    assert "db is as it was before" in said
    assert node.conf.read_text() == config.replace("CACHE", kept)
    assert ("what errors, warnings and --also ask for is made by itself" in said) is (kept != cache)


def test_a_copy_is_shown_and_its_vm_not_touched(node: Node, tmp_path: Path) -> None:
    """`qm` would change the VM of that number, and virtune look for the change in the copy."""
    copy = tmp_path / "101.conf"
    copy.write_text(CONFIG)
    assert "101.conf is a copy" in node.run("apply", str(copy), *TURNS, status=2)
    quick = ("--rig", "storage-daemon", "--rounds", "1", "--seconds", "100ms", "--ramp", "0", "--span", "16M")
    said = node.run("fix", f"{copy}:scsi0", "--scratch", str(tmp_path), "--also", "R47", "--yes", *quick)
    assert "qm set 101 --scsi0" in said
    assert "changed; `" not in said
    assert (node.conf.read_text(), copy.read_text()) == (CONFIG, CONFIG)
    link = tmp_path / "link.d"
    link.symlink_to(node.conf.parent)
    assert "nothing to change" in node.run(
        "apply", str(link / "101.conf"), "--set", "disk.cache@scsi0=writeback", "--yes"
    )


def test_a_vm_is_named_by_its_number(node: Node) -> None:
    node.run("apply", "101", *TURNS)
    assert "cache=none" in node.conf.read_text()
    node.run("undo", "last")
    assert "no VM 102 on this node" in node.run("apply", "102", *TURNS, status=2)


def test_no_disk_is_added_or_removed(node: Node, tmp_path: Path) -> None:
    vm, before = ProxmoxVm(node.conf), node.conf.read_bytes()
    after = before.replace(b"scsi1: local-lvm:vm-101-disk-1,size=100G\n", b"")
    with pytest.raises(
        PreconditionError, match="scsi1 is in one of the configurations only, and virtune moves no disk"
    ):
        vm.apply((), before, after, journal=Journal(tmp_path / "journal"), when=datetime.now(UTC))
    assert node.conf.read_bytes() == before


@pytest.mark.parametrize("runs", [False, True], ids=["off", "running"])
def test_killed_at_any_instant_undo_returns_every_byte(node: Node, tmp_path: Path, runs: bool) -> None:
    if runs:
        node.starts()
    turns = tuple(map(read_turn, TURNS[1:4:2]))
    before, died = node.conf.read_bytes(), 0
    for instant in range(8):
        journal = tmp_path / f"journal-{instant}"
        died += killed(DyingJournal(journal, instant), node.conf, turns)
        for entry in Journal(journal).entries():
            ProxmoxVm(node.conf).undo(entry, journal=Journal(journal), anyway=False)
        assert node.conf.read_bytes() == before, instant
    assert died == 8


def killed(journal: Journal, conf: Path, turns: tuple[SettingChange, ...]) -> bool:
    """Make the change in a process of its own that dies; whether it did."""
    text = conf.read_bytes()
    after = PROXMOX.alter(text, *turns)
    return dies(lambda: ProxmoxVm(conf).apply(turns, text, after, journal=journal, when=datetime.now(UTC)))
