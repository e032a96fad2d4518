# SPDX-License-Identifier: Apache-2.0
"""The rig `storage-daemon`: QEMU's block layer without a guest, exported over NBD, FUSE or vhost-user-blk.

The daemon is started bare and told by QMP what to open, so that what the image brought with it (an io_uring, a native
AIO context) can be told from what the daemon had before. An IOThread is made before that, and counts as what was
there: it is no worker thread.
"""

import contextlib
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virtune import shell
from virtune.bench.export_in_force import Served, export_checks, iothread_check_under_load, iothread_of
from virtune.bench.in_force import (
    Engines,
    cache_checks,
    cpu_by_thread,
    engine_check,
    engine_check_under_load,
    engines_of,
    node_checks,
)
from virtune.bench.qmp import Monitor
from virtune.bench.rig import Ground
from virtune.bench.vhost_user import queues_of
from virtune.dialects.qemu import EXPORT, IOTHREAD, DaemonPlaces, command_line, daemon_commands, thread_commands
from virtune.model.errors import RigError
from virtune.model.evidence import Changeover, Check, InForce
from virtune.model.stack import Stack
from virtune.model.target import FileTarget, NbdTarget, Target, VhostUserTarget
from virtune.warden import mounts_below, unmount

PROGRAM = "qemu-storage-daemon"


@dataclass(slots=True, kw_only=True)
class DaemonBench:
    """A storage daemon with one export.

    `idle` is what it was before it opened anything, `spent` what each thread had used of a CPU when all was up, and
    `iothread` the thread that is to serve the export, None for the main loop.
    """

    target: Target
    image: Path | None
    command: str
    processes: Mapping[str, int]
    in_force: InForce
    stack: Stack
    idle: Engines
    spent: Mapping[int, int]
    iothread: int | None
    child: shell.Child
    changeover: Changeover | None = None

    def under_load(self, *, flushes: bool) -> tuple[Check, ...]:
        """Look who does the I/O now."""
        checks = []
        if self.stack.disk.backend == "file":
            checks.append(engine_check_under_load(self.stack, self.child.pid, self.idle, flushes=flushes))
        if self.iothread is not None:
            checks.append(iothread_check_under_load(self.stack, self.child.pid, self.iothread, self.spent))
        return tuple(check for check in checks if check is not None)

    def trouble(self) -> str | None:
        """Say how the daemon ended, None while it runs."""
        status = self.child.poll()
        if status is None:
            return None
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        words = self.child.last_words()
        return f"{PROGRAM} was {how}" + (f": {words}" if words else "") if status < 0 else f"{PROGRAM} {how}"


class DaemonSession:
    """A daemon of its own for every stack."""

    def __init__(self, warden: shell.Warden) -> None:
        self._warden = warden

    @contextlib.contextmanager
    def up(self, stack: Stack, ground: Ground, *, restart: bool = False) -> Iterator[DaemonBench]:  # noqa: ARG002
        """Start a daemon with this stack, and end it with the block; raises RigError when anything is refused."""
        begun = time.monotonic()
        with _up(stack, ground, self._warden) as bench:
            seconds, process = time.monotonic() - begun, bench.child.pid
            bench.changeover = Changeover(swapped=None, seconds=seconds, process=process, why="as for every arm")
            yield bench


@contextlib.contextmanager
def session(warden: shell.Warden) -> Iterator[DaemonSession]:
    """Yield the rig; nothing is to be made ready."""
    yield DaemonSession(warden)


@contextlib.contextmanager
def _up(stack: Stack, ground: Ground, warden: shell.Warden) -> Iterator[DaemonBench]:
    """Start a daemon, open the stack's nodes, export them; take it all down with the block.

    Raises RigError with QEMU's own words when anything is refused.
    """
    program = shell.find(PROGRAM)
    places = _places(ground, warden.directory)
    Path(places.socket).unlink(missing_ok=True)
    if stack.export == "fuse":
        Path(places.mountpoint).touch()
    with _daemon(program, warden) as (child, connection):
        threads = thread_commands(stack)
        commands = daemon_commands(stack, places)
        with _monitor(connection, child) as monitor:
            started = engines_of(child.pid)
            for command in threads:
                monitor.execute(command.execute, command.arguments)
            bare = engines_of(child.pid)
            for command in commands[len(threads) :]:
                monitor.execute(command.execute, command.arguments)
            opened = engines_of(child.pid)
            served = _served(stack, places, monitor, bare.threads - started.threads)
            checks = (*export_checks(stack, served), *_checks(stack, ground, child.pid, monitor, bare, opened))
        try:
            yield DaemonBench(
                target=_target(stack, places),
                image=ground.image,
                command=command_line(PROGRAM, commands),
                processes={"daemon": child.pid},
                in_force=InForce(checks=checks),
                stack=stack,
                # opening an image may start a worker already, so only what was there before is no worker
                idle=bare,
                spent=dict(cpu_by_thread(child.pid)),
                iothread=iothread_of(served),
                child=child,
            )
        finally:
            child.end(signal.SIGTERM)
            # A daemon that is asked to end unmounts by itself; the mount of one that was killed stays, and answers
            # every look with ENOTCONN until it is unmounted.
            for mount in mounts_below(warden.directory):
                unmount(mount)


@contextlib.contextmanager
def _daemon(program: str, warden: shell.Warden) -> Iterator[tuple[shell.Child, socket.socket]]:
    """Start a bare daemon with a monitor that is connected from the start, and yield it with our end."""
    ours, theirs = socket.socketpair()
    with ours, contextlib.ExitStack() as stack:
        with theirs:
            end = theirs.fileno()
            argv = [program, "--chardev", f"socket,id=monitor,fd={end}", "--monitor", "chardev=monitor"]
            child = stack.enter_context(warden.running(argv, name="daemon", keep=(end,)))
        yield child, ours


@contextlib.contextmanager
def _monitor(connection: socket.socket, child: shell.Child) -> Iterator[Monitor]:
    """Take up the daemon's monitor; a daemon that ends instead is an error with its own last words."""
    with contextlib.ExitStack() as stack:
        try:
            monitor = stack.enter_context(Monitor(connection))
        except RigError as error:
            raise RigError(f"{PROGRAM}: {error.message}", hint=child.last_words()) from None
        yield monitor


def _places(ground: Ground, directory: Path) -> DaemonPlaces:
    image = ground.image
    return DaemonPlaces(
        image="" if image is None else str(image.resolve()),
        size_bytes=ground.size_bytes,
        socket=str(directory / "disk.sock"),
        mountpoint=str(directory / "disk"),
        block_device=image is not None and image.is_block_device(),
        writable=ground.writes,
    )


def _target(stack: Stack, places: DaemonPlaces) -> Target:
    if stack.export == "fuse":
        return FileTarget(path=places.mountpoint, size_bytes=places.size_bytes)
    if stack.export == "vhost-user-blk":
        return VhostUserTarget(socket=places.socket, size_bytes=places.size_bytes, queues=stack.queues)
    return NbdTarget(socket=places.socket, export=EXPORT, size_bytes=places.size_bytes)


def _served(stack: Stack, places: DaemonPlaces, monitor: Monitor, threads: frozenset[int]) -> Served:
    exports = monitor.execute("query-block-exports")
    asked = stack.in_iothread
    thread = {"path": f"/objects/{IOTHREAD}", "property": "poll-max-ns"}
    return Served(
        kind=exports[0]["type"] if exports else None,
        threads=threads if asked else frozenset(),
        poll_max_ns=monitor.execute("qom-get", thread) if asked else None,
        queues=queues_of(Path(places.socket)) if stack.export == "vhost-user-blk" else None,
    )


def _checks(
    stack: Stack, ground: Ground, pid: int, monitor: Monitor, bare: Engines, opened: Engines
) -> tuple[Check, ...]:
    nodes: list[Mapping[str, Any]] = monitor.execute("query-named-block-nodes")
    limited = stack.disk.throttle_iops or stack.disk.throttle_bps
    limits = monitor.execute("qom-get", {"path": "/objects/limits0", "property": "limits"}) if limited else None
    checks: list[Check] = []
    if ground.image is not None and stack.disk.backend == "file":
        checks.append(engine_check(stack, bare, opened))
        checks += cache_checks(stack, pid, ground.image, nodes)
    driver = "host_device" if ground.image is not None and ground.image.is_block_device() else None
    checks += (
        check if driver is None or check.setting != "disk.backend" else _device_check(check, driver)
        for check in node_checks(stack, nodes, limits)
    )
    return tuple(checks)


def _device_check(check: Check, driver: str) -> Check:
    """On a block device QEMU's `file` back end is called `host_device`."""
    found = check.asked if check.found == driver else check.found
    return Check(setting=check.setting, asked=check.asked, found=found, proof=f"{check.proof}: {driver}")
