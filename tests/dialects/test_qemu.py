# SPDX-License-Identifier: Apache-2.0
"""A Stack in QEMU's words: what is rendered, and that the real daemon takes the pasted line."""

import shlex
import subprocess
from pathlib import Path

import pytest
from tests.conftest import eventually

from virtune.dialects.qemu.qmp import (
    Command,
    DaemonPlaces,
    command_line,
    daemon_commands,
    thread_commands,
    undo_commands,
)
from virtune.model.stack import Disk, Stack
from virtune.model.text import Bytes

PLACES = DaemonPlaces(image="/x/d.raw", size_bytes=1024**2, socket="/x/nbd.sock", mountpoint="/x/disk")


def nodes(stack: Stack, places: DaemonPlaces = PLACES) -> dict[str, dict[str, object]]:
    commands = daemon_commands(stack, places)
    return {str(c.arguments["node-name"]): dict(c.arguments) for c in commands if c.execute == "blockdev-add"}


@pytest.mark.parametrize(
    ("cache", "direct", "no_flush", "writethrough"),
    [
        ("none", True, False, False),
        ("writeback", False, False, False),
        ("writethrough", False, False, True),
        ("directsync", True, False, True),
        ("unsafe", False, True, False),
    ],
)
def test_a_cache_mode_is_three_bits_on_every_node_it_belongs_to(
    cache: str, direct: bool, no_flush: bool, writethrough: bool
) -> None:
    stack = Stack(disk=Disk(cache=cache))  # type: ignore[arg-type]
    for node in nodes(stack).values():
        assert node["cache"] == {"direct": direct, "no-flush": no_flush}
    assert daemon_commands(stack, PLACES)[-1].arguments["writethrough"] is writethrough


def test_a_null_device_never_answers_from_the_block_status_alone() -> None:
    node = nodes(Stack(disk=Disk(backend="null-co", null_latency_ns=5)))["file0"]
    assert node == {"driver": "null-co", "node-name": "file0", "size": 1024**2, "latency-ns": 5, "read-zeroes": False}


def test_limits_are_a_node_of_their_own_on_top() -> None:
    commands = daemon_commands(Stack(disk=Disk(throttle_iops=500)), PLACES)
    assert [c.execute for c in commands] == [
        "blockdev-add", "blockdev-add", "object-add", "blockdev-add", "nbd-server-start", "block-export-add"
    ]  # fmt: skip
    assert commands[2].arguments["limits"] == {"iops-total": 500}
    assert commands[-1].arguments["node-name"] == "limit0"
    unmaps = nodes(Stack(disk=Disk(throttle_iops=500, discard="unmap")), PLACES)
    assert {node["discard"] for node in unmaps.values()} == {"unmap"}, "a discard ends at the first without"


def test_a_block_device_and_a_load_that_only_reads() -> None:
    places = DaemonPlaces(image="/dev/x", size_bytes=1, socket="s", mountpoint="m", block_device=True, writable=False)
    found = nodes(Stack(), places)
    assert found["file0"]["driver"] == "host_device"
    assert all(node["read-only"] is True for node in found.values())
    assert daemon_commands(Stack(), places)[-1].arguments["writable"] is False


def test_a_vhost_user_export_has_its_iothread_first_and_its_queues() -> None:
    commands = daemon_commands(Stack(export="vhost-user-blk", num_queues=2, poll_max_ns=0), PLACES)
    assert [c.execute for c in commands] == ["object-add", "blockdev-add", "blockdev-add", "block-export-add"]
    assert commands[0].arguments == {"qom-type": "iothread", "id": "iothread0", "poll-max-ns": 0}
    assert commands[-1].arguments == {
        "type": "vhost-user-blk",
        "id": "export0",
        "node-name": "format0",
        "writable": True,
        "writethrough": False,
        "iothread": "iothread0",
        "addr": {"type": "unix", "path": "/x/nbd.sock"},
        "num-queues": 2,
    }


def test_an_export_from_the_main_loop_has_no_iothread() -> None:
    commands = daemon_commands(Stack(export="vhost-user-blk", iothread=False), PLACES)
    assert [c.execute for c in commands] == ["blockdev-add", "blockdev-add", "block-export-add"]
    assert "iothread" not in commands[-1].arguments
    assert thread_commands(Stack()) == thread_commands(Stack(rig="metal")) == ()


@pytest.mark.real
@pytest.mark.parametrize(
    "stack",
    [
        Stack(disk=Disk(aio="native")),
        Stack(disk=Disk(aio="io_uring", cache="unsafe", discard="unmap", detect_zeroes="unmap")),
        Stack(export="fuse", disk=Disk(cache="writethrough")),
        Stack(disk=Disk(backend="null-co", throttle_iops=100, throttle_bps=Bytes(1024**2))),
        Stack(export="vhost-user-blk", num_queues=2, poll_max_ns=1000, disk=Disk(aio="native", cache="directsync")),
        Stack(export="fuse", iothread=True),
    ],
)
def test_the_line_can_be_pasted(stack: Stack, tmp_path: Path) -> None:
    image = tmp_path / "with space 'and quote.raw"
    image.write_bytes(b"x" * 1024**2)
    mount = tmp_path / "disk"
    mount.touch()
    places = DaemonPlaces(
        image=str(image), size_bytes=1024**2, socket=str(tmp_path / "nbd.sock"), mountpoint=str(mount)
    )
    line = command_line("qemu-storage-daemon", daemon_commands(stack, places))
    pidfile = tmp_path / "pid"
    with subprocess.Popen([*shlex.split(line), "--pidfile", pidfile], stderr=subprocess.PIPE, text=True) as daemon:
        try:
            # the pid file is written when everything on the line has been done
            assert eventually(lambda: pidfile.exists() or daemon.poll() is not None)
            assert daemon.poll() is None, daemon.stderr and daemon.stderr.read()
        finally:
            daemon.terminate()


def test_what_was_made_is_deleted_the_last_first() -> None:
    stack = Stack(export="vhost-user-blk", disk=Disk(throttle_iops=5))
    undone = [(c.execute, *c.arguments.values()) for c in undo_commands(daemon_commands(stack, PLACES))]
    assert undone == [
        ("block-export-del", "export0", "hard"),
        ("blockdev-del", "limit0"),
        ("object-del", "limits0"),
        ("blockdev-del", "format0"),
        ("blockdev-del", "file0"),
        ("object-del", "iothread0"),
    ]
    nbd = [command.execute for command in undo_commands(daemon_commands(Stack(), PLACES))]
    assert nbd[:2] == ["block-export-del", "nbd-server-stop"]
    with pytest.raises(ValueError, match="nothing undoes quit"):
        undo_commands([Command(execute="quit", arguments={})])
