# SPDX-License-Identifier: Apache-2.0
"""Write a Stack as the QMP commands that bring it up, and as a command line.

A disk is a chain of block nodes: `file0` (how the image is opened: aio, cache) below `format0` (raw or qcow2) below,
where a limit is asked for, `limit0` (throttle). The images below it (`layer1` on `layer1-file`, and so on) and its
external data file (`data0`) are nodes of their own: what QEMU opens by itself has its default engine. `blockdev-add`
inherits nothing from node to node, so the cache options are written on every node they belong to: set only on the
format node, `cache.no-flush` would be lost.

What serves the export comes first: QEMU takes a command line in order, and an export must find its IOThread.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from virtune.dialects.qemu.images import KEY, chain_of, data_file_of, key_of
from virtune.model.stack import BACKING_MAX, DIRECT_CACHES, Disk, Stack, rbd_place, writes_through

FILE_NODE = "file0"
"""The node that opens the image; its options are the ones that reach the kernel."""

FORMAT_NODE = "format0"
"""The node that reads the image's format."""

COPY_NODE = "copy0"
"""The node of the image that a block job copies a disk to, or of the overlay that a snapshot of it is."""

DATA_NODE = "data0"
"""The node that opens the external data file."""

_LAYER_NODES = tuple(f"layer{number}" for number in range(1, BACKING_MAX + 1))

OPENED = (FILE_NODE, FORMAT_NODE, DATA_NODE, *(f"{one}{end}" for one in _LAYER_NODES for end in ("", "-file")))
"""Every node of an image."""

EXPORT = "disk"
"""The name of the NBD export."""


IOTHREAD = "iothread0"
"""The thread that serves the export, where it has one of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One QMP command with its arguments."""

    execute: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonPlaces:
    """The paths of a storage daemon's image and export.

    `block_device`: the image is a block device, which QEMU opens with another driver. `writable`: whether the load
    writes; an image that is only read is opened read-only, for safety. `rbd` is the name of an image on Ceph.
    """

    image: str
    size_bytes: int
    socket: str
    mountpoint: str
    block_device: bool = False
    writable: bool = True
    rbd: str = ""


def daemon_commands(stack: Stack, places: DaemonPlaces) -> tuple[Command, ...]:
    """Render the commands, in order, with which a `qemu-storage-daemon` brings this stack up."""
    return (*thread_commands(stack), *_disk_commands(stack, places))


def thread_commands(stack: Stack) -> tuple[Command, ...]:
    """Render the commands that create the export's IOThread, if any; they come first in `daemon_commands`."""
    if not stack.in_iothread:
        return ()
    thread: dict[str, Any] = {"qom-type": "iothread", "id": IOTHREAD}
    if stack.poll_max_ns is not None:
        thread["poll-max-ns"] = stack.poll_max_ns
    return (Command(execute="object-add", arguments=thread),)


def _disk_commands(stack: Stack, places: DaemonPlaces) -> tuple[Command, ...]:
    disk = stack.disk
    commands = [Command(execute="blockdev-add", arguments=node) for node in _image_nodes(disk, places)]
    if (key := key_of(disk, PurePath(places.image))) is not None:
        secret = {"qom-type": "secret", "id": KEY, "file": str(key)}
        commands.insert(0, Command(execute="object-add", arguments=secret))
    top = FORMAT_NODE
    if asked := disk.limits:
        top = "limit0"
        group = {"qom-type": "throttle-group", "id": "limits0", "limits": asked}
        commands.append(Command(execute="object-add", arguments=group))
        node = {"driver": "throttle", "node-name": top, "throttle-group": "limits0", "file": FORMAT_NODE}
        node |= {"discard": disk.discard}  # a discard ends at the first node that does not unmap
        commands.append(Command(execute="blockdev-add", arguments=node))
    return (*commands, *_export(stack, places, top))


def copy_command(disk: Disk, image: str) -> Command:
    """Render the command that opens a raw image as a disk's image is opened: what a block job copies the disk to."""
    arguments = {"driver": "raw", "node-name": COPY_NODE, "cache": _cache(disk), "file": _beside(disk, image)}
    return Command(execute="blockdev-add", arguments=arguments)


def overlay_commands(disk: Disk, image: str, size_bytes: int, *, job: str) -> tuple[Command, Command]:
    """Render the commands that write an empty qcow2 into an empty file, in a job, and open it as a disk's image is
    opened, with nothing below: what a snapshot puts above the disk.
    """
    file = _beside(disk, image) | {"discard": disk.discard}
    options = {"driver": "qcow2", "file": file, "size": size_bytes}
    create = Command(execute="blockdev-create", arguments={"job-id": job, "options": options})
    node = {"driver": "qcow2", "node-name": COPY_NODE, "cache": _cache(disk), "backing": None, "file": file}
    node |= {"discard": disk.discard, "detect-zeroes": disk.detect_zeroes}
    return create, Command(execute="blockdev-add", arguments=node)


def _beside(disk: Disk, image: str) -> dict[str, Any]:
    return {"driver": "file", "filename": image, "aio": disk.aio, "cache": _cache(disk)}


def undo_commands(commands: Sequence[Command]) -> tuple[Command, ...]:
    """Render the commands that undo these commands, the last first.

    An export is deleted whether or not a client is still connected: a load that has ended may not be noticed yet.
    """
    return tuple(_undo(command) for command in reversed(commands))


def _undo(command: Command) -> Command:
    given = command.arguments
    match command.execute:
        case "blockdev-add":
            return Command(execute="blockdev-del", arguments={"node-name": given["node-name"]})
        case "object-add":
            return Command(execute="object-del", arguments={"id": given["id"]})
        case "block-export-add":
            return Command(execute="block-export-del", arguments={"id": given["id"], "mode": "hard"})
        case "nbd-server-start":
            return Command(execute="nbd-server-stop", arguments={})
    raise ValueError(f"nothing undoes {command.execute}")


def command_line(program: str, commands: tuple[Command, ...]) -> str:
    """Render the same commands as one line that can be pasted into a terminal."""
    flags = {"blockdev-add": "--blockdev", "object-add": "--object", "block-export-add": "--export"}
    words = [program]
    for command in commands:
        if command.execute == "nbd-server-start":
            words += ["--nbd-server", f"addr.type=unix,addr.path={command.arguments['addr']['data']['path']}"]
        else:
            words += [flags[command.execute], json.dumps(dict(command.arguments), separators=(",", ":"))]
    return shlex.join(words)


def _image_nodes(disk: Disk, places: DaemonPlaces) -> Iterator[dict[str, Any]]:
    """Yield the nodes of an image, each after those that it stands on."""
    image, below = PurePath(places.image), dict[str, str]()
    chain = list(zip(_LAYER_NODES, chain_of(disk, image), strict=False))
    for name, layer in reversed(chain):
        at = replace(places, image=str(layer), writable=False)
        yield {**_file_node(disk, at), "node-name": f"{name}-file"}
        yield {**_format_node(disk, at), "node-name": name, "file": f"{name}-file", **below}
        below = {"backing": name}
    if (data := data_file_of(disk, image)) is not None:
        yield {**_file_node(disk, replace(places, image=str(data))), "node-name": DATA_NODE}
        below["data-file"] = DATA_NODE
    encrypted = {"encrypt": {"format": "luks", "key-secret": KEY}} if disk.encryption == "luks" else {}
    yield _file_node(disk, places)
    yield {**_format_node(disk, places), **below, **encrypted}


def _file_node(disk: Disk, places: DaemonPlaces) -> dict[str, Any]:
    if disk.backend == "null-co":
        # read-zeroes must stay off: with it the NBD server answers from the block status alone and no read
        # ever reaches the device, its latency or the limit above it.
        node: dict[str, Any] = {"driver": "null-co", "node-name": FILE_NODE, "size": places.size_bytes}
        node |= {"latency-ns": disk.null_latency_ns, "read-zeroes": False}
        return node
    if disk.rbd is not None:
        place = rbd_place(disk.rbd)
        said = {"pool": place.pool, "namespace": place.namespace, "user": place.user, "conf": place.conf}
        return {
            "driver": "rbd",
            "node-name": FILE_NODE,
            "image": places.rbd,
            **{name: value for name, value in said.items() if value is not None},
            "read-only": not places.writable,
            "cache": _cache(disk),
            "discard": disk.discard,
        }
    return {
        "driver": "host_device" if places.block_device else "file",
        "node-name": FILE_NODE,
        "filename": places.image,
        "read-only": not places.writable,
        "aio": disk.aio,
        "cache": _cache(disk),
        "discard": disk.discard,
    }


def _format_node(disk: Disk, places: DaemonPlaces) -> dict[str, Any]:
    node: dict[str, Any] = {"driver": disk.format, "node-name": FORMAT_NODE, "file": FILE_NODE}
    node["read-only"] = not places.writable
    node |= {"cache": _cache(disk), "discard": disk.discard, "detect-zeroes": disk.detect_zeroes}
    if disk.l2_cache_size is not None:
        node["l2-cache-size"] = disk.l2_cache_size
    return node


def _cache(disk: Disk) -> dict[str, bool]:
    return {"direct": disk.cache in DIRECT_CACHES, "no-flush": disk.cache == "unsafe"}


def _export(stack: Stack, places: DaemonPlaces, node: str) -> tuple[Command, ...]:
    export: dict[str, Any] = {"id": "export0", "node-name": node, "writable": places.writable}
    # writethrough and directsync make every write durable before it is acknowledged. A guest's device does that
    # by announcing no write cache; an export does it by flushing after each write.
    export["writethrough"] = writes_through(stack)
    if stack.in_iothread:
        export["iothread"] = IOTHREAD
    if stack.export == "fuse":
        fuse = {"type": "fuse", **export, "mountpoint": places.mountpoint, "growable": False}
        return (Command(execute="block-export-add", arguments=fuse),)
    if stack.export == "vhost-user-blk":
        at = {"addr": {"type": "unix", "path": places.socket}, "num-queues": stack.queues}
        return (Command(execute="block-export-add", arguments={"type": "vhost-user-blk", **export, **at}),)
    server = {"addr": {"type": "unix", "data": {"path": places.socket}}}
    return (
        Command(execute="nbd-server-start", arguments=server),
        Command(execute="block-export-add", arguments={"type": "nbd", **export, "name": EXPORT}),
    )
