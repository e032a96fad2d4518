# SPDX-License-Identifier: Apache-2.0
"""The rigs `storage-daemon` and `vhost-user`: QEMU's block layer without a guest, exported over NBD, FUSE or
vhost-user-blk.

One daemon lives as long as the study, and arms are switched in it over QMP: the export, its nodes, limits and
IOThread are deleted after each trial and created again for the next. A new daemon is started on request, after one
died, hung or failed its trial, and where remains of earlier arms would make verification impossible. The daemon is
inspected before and after it opens the image, so that what the image adds (an io_uring, a native AIO context) can be
told from what was there before.

A `qemu-storage-daemon` has no `query-iothreads` and names no thread, so an IOThread is created first, which no worker
thread can then be taken for, and recognised as the one thread that appeared when it was created. Whether the export
runs in it is verified under load, by the CPU time of the threads.
"""

import contextlib
import json
import signal
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from virtune import shell
from virtune.bench.load import HereLoad, Loaded, run_loads
from virtune.bench.port import DiskImageSpec, Keep, LoadJob, LoadOutput, Surroundings, Window
from virtune.bench.qmp import Monitor
from virtune.bench.verify import (
    Row,
    cache_checks,
    cpu_of,
    engine_check,
    engine_check_under_load,
    moved_since,
    node_checks,
    opened,
    rbd_checks,
    requested,
    serving_thread,
    since,
    spent_by_crew,
)
from virtune.dialects.qemu.images import files_of
from virtune.dialects.qemu.qmp import (
    EXPORT,
    IOTHREAD,
    Command,
    DaemonPlaces,
    command_line,
    daemon_commands,
    thread_commands,
    undo_commands,
)
from virtune.model.errors import RigError
from virtune.model.evidence import CREW, UNDER_LOAD, Changeover, Check, InForce
from virtune.model.knobs import needs_new_process
from virtune.model.stack import FileTarget, NbdTarget, Stack, Target, VhostUserTarget
from virtune.model.text import setting_text
from virtune.probe.process import IO_URING, PROC, Process, Rings
from virtune.warden import mounts_below, unmount

_MAIN_LOOP_NS = 5_000_000
"""A main loop that does not serve the export uses little CPU: a connecting client costs it less than 5 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a daemon shows of its export. `threads` are those that appeared with the IOThread; None: not shown."""

    kind: str | None
    threads: frozenset[int]
    poll_max_ns: int | None
    queues: int | None


def export_checks(stack: Stack, served: Served) -> Iterator[Check]:
    """Compare what the daemon shows of its export with the stack's settings."""
    yield Check("disk.export", stack.export, served.kind, "QMP query-block-exports")
    if stack.export == "vhost-user-blk" or stack.iothread is not None:
        yield _thread_check(stack, served.threads)
    answers = "the server does not answer" if served.queues is None else "the server's answer to"
    rows: tuple[Row, ...] = (
        ("iothread.poll_max_ns", stack.poll_max_ns, served.poll_max_ns, "QMP qom-get poll-max-ns"),
        (
            "export.num_queues",
            stack.queues if stack.export == "vhost-user-blk" else None,
            served.queues,
            f"{answers} GET_QUEUE_NUM",
        ),
    )
    yield from requested(rows)


def iothread_check_under_load(stack: Stack, iothread: int, own_ns: int, main_ns: int) -> Check:
    """Find out from the CPU time under load whether the IOThread or the main loop serves the export."""
    served = serving_thread(own_ns, main_ns, main_enough_ns=_MAIN_LOOP_NS)
    proof = f"thread {iothread} used {own_ns / 1e6:.1f} ms of CPU {UNDER_LOAD}, the main loop {main_ns / 1e6:.1f}"
    found = None if served is None else setting_text(served)
    return Check("export.iothread", setting_text(stack.in_iothread), found, proof)


def _thread_check(stack: Stack, threads: frozenset[int]) -> Check:
    """Return the check before the load: the thread's existence does not prove yet that the export runs in it."""
    asked = setting_text(stack.in_iothread)
    if not stack.in_iothread:
        return Check("export.iothread", asked, "off", "the daemon was given no IOThread")
    if len(threads) != 1:
        proof = f"{len(threads)} threads came with the IOThread, so it cannot be told apart"
    else:
        proof = f"thread {next(iter(threads))} came with the IOThread; the load tells whether the export runs in it"
    return Check("export.iothread", asked, None, proof)


_GET_QUEUE_NUM = 17
_VERSION = 1
_REQUEST = struct.pack("=III", _GET_QUEUE_NUM, _VERSION, 0)
_REPLY = struct.Struct("=IIIQ")

_DEADLINE_SECONDS = 2.0
"""The answer takes 0.5 ms (3000 times with QEMU 7.2); a server that is silent for this long hangs."""


def queues_of(path: Path) -> int | None:
    """Ask the server on this socket for the number of its queues; None when it does not say."""
    with contextlib.suppress(OSError, EOFError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_DEADLINE_SECONDS)
        connection.connect(str(path))
        connection.sendall(_REQUEST)
        answer = b""
        while len(answer) < _REPLY.size:
            part = connection.recv(_REPLY.size - len(answer))
            if not part:
                raise EOFError
            answer += part
        request, _, size, queues = _REPLY.unpack(answer)
        return int(queues) if (request, size) == (_GET_QUEUE_NUM, 8) else None
    return None


PROGRAM = "qemu-storage-daemon"

_GONE_SECONDS = 5.0
"""An export without a client is deleted within 2 ms; one that exists this long after is stuck."""

_TICK_SECONDS = 0.002

_ENDING_SECONDS = 0.05
"""For so long a process that was killed may still be there, without anything that could be seen of it."""


@dataclass(kw_only=True)
class DaemonBench(Loaded):
    """A storage daemon with one export.

    `iothread` is the thread that should serve the export, None for the main loop. `crew` are the threads that existed
    before any image was opened, and the stack's own IOThread: none of them is a worker. `spent`, ns on a CPU by
    thread, and `rings` are of when the stack was up and not loaded yet. `loop_rings`: the event loop itself runs on
    io_uring, so that rings complete more than the disk's requests.
    """

    crew: frozenset[int]
    spent: Mapping[int, int]
    rings: Rings
    loop_rings: bool
    iothread: int | None
    child: shell.Child
    warden: shell.Warden

    def run(self, jobs: Sequence[LoadJob], window: Window, keep: Keep) -> LoadOutput:
        crew = {"crew": sorted(self.crew), "iothread": self.iothread}
        keep.capture(CREW, json.dumps(crew) + "\n")
        return run_loads([HereLoad(self, jobs[0], self.warden)], window, keep)

    def under_load(self, *, flushes: bool) -> tuple[Check, ...]:
        process, checks = Process(self.child.pid), []
        threads = since(process, self.spent)
        if self.stack.disk.backend == "file":
            spent = spent_by_crew(threads, self.crew)
            activity = replace(
                moved_since(process, self.rings),
                workers_ns=spent.of("worker"),
                io_ns=spent.io_ns,
                loop_rings=self.loop_rings,
                flushes=flushes,
            )
            checks.append(engine_check_under_load(self.stack.disk.aio, activity))
        if self.iothread is not None:
            used = {thread.tid: thread.cpu_ns for thread in threads}
            own, main = used.get(self.iothread, 0), used.get(self.child.pid, 0)
            checks.append(iothread_check_under_load(self.stack, self.iothread, own, main))
        return tuple(checks)

    def trouble(self) -> str | None:
        status = self.child.poll()
        if status is None:
            return None
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        words = self.child.last_words()
        return f"{PROGRAM} was {how}" + (f": {words}" if words else "") if status < 0 else f"{PROGRAM} {how}"


class DaemonSession:
    """A storage daemon, kept as long as possible and then replaced by a new one."""

    def __init__(self, warden: shell.Warden, *, proc: Path = PROC) -> None:
        self._warden, self._proc = warden, proc
        self._daemon: Daemon | None = None
        self._why = "the first one"
        self._down_seconds = 0.0

    @contextlib.contextmanager
    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> Iterator[DaemonBench]:
        """Open the stack's nodes and export them, and remove them when the block ends.

        Raises RigError with QEMU's message when anything is refused.
        """
        try:
            yield self._switched(stack, ground, self._needs_new(stack, restart=restart))
        except BaseException:
            # Its state is unknown.
            self._why = "the trial in the one before failed"
            self.close()
            raise
        self._take_down()

    def close(self) -> None:
        if self._daemon is not None:
            daemon, self._daemon = self._daemon, None
            daemon.end()

    def _switched(self, stack: Stack, ground: DiskImageSpec, why: str | None) -> DaemonBench:
        """Bring the stack up in the running daemon, or in a new one because of `why`."""
        begun = time.monotonic()
        if self._daemon is None or why is not None:
            self.close()
            self._daemon = Daemon(self._warden)
        daemon = self._daemon
        try:
            bench = daemon.open(stack, ground)
        except RigError as error:
            if why is not None:
                raise
            # A refusal counts only from a new daemon; one that is gone or inconsistent is replaced.
            return self._switched(stack, ground, f"the one before failed: {error.message}")
        bench.changeover = Changeover(
            swapped="export" if why is None else None,
            seconds=self._down_seconds + time.monotonic() - begun,
            process=daemon.child.pid,
            carried=daemon.carried,
            why=why or "",
        )
        daemon.carried += 1
        return bench

    def _needs_new(self, stack: Stack, *, restart: bool) -> str | None:
        """Say why this stack needs a new daemon, None when it can be swapped in."""
        daemon = self._daemon
        if daemon is None:
            return self._why
        if restart:
            return "asked for"
        if daemon.child.poll() is not None:
            return "the one before ended by itself"
        hidden = daemon.hides(stack, self._proc)
        # of one that is about to end nothing is seen any more
        ended = hidden is not None and daemon.child.wait(_ENDING_SECONDS) is not None
        return "the one before ended by itself" if ended else hidden

    def _take_down(self) -> None:
        """Take the stack down; a daemon that does not release it is ended, and the next arm gets a new one."""
        begun = time.monotonic()
        try:
            if self._daemon is not None:
                self._daemon.close()
        except RigError as error:
            self._why = f"the one before did not let go of its disk: {error.message}"
            self.close()
        except BaseException:
            self.close()
            raise
        self._down_seconds = time.monotonic() - begun


def session(stack: Stack, place: Surroundings) -> AbstractContextManager[DaemonSession]:  # noqa: ARG001 - one for all
    """Return the rig, whose daemon ends with the block."""
    return contextlib.closing(DaemonSession(place.warden))


class Daemon:
    """One `qemu-storage-daemon` with its monitor; `carried` counts the stacks that were up in it."""

    def __init__(self, warden: shell.Warden) -> None:
        self._warden = warden
        self._stack: Stack | None = None
        self._told: tuple[Command, ...] = ()
        self.carried = 0
        with contextlib.ExitStack() as ends:
            ours, theirs = map(ends.enter_context, socket.socketpair())
            end = theirs.fileno()
            command = [
                shell.find(PROGRAM),
                "--chardev",
                f"socket,id=monitor,fd={end}",
                "--monitor",
                "chardev=monitor",
            ]
            self.child = ends.enter_context(warden.running(command, name="daemon", keep=(end,)))
            theirs.close()
            try:
                self._monitor = ends.enter_context(Monitor(ours))
            except RigError as error:
                raise RigError(f"{PROGRAM}: {error.message}", hint=self.child.last_words()) from None
            # A daemon that ends by SIGTERM unmounts by itself; the mount of a killed one stays, and every access
            # fails with ENOTCONN until it is unmounted.
            ends.callback(lambda: [unmount(mount) for mount in mounts_below(warden.directory)])
            ends.callback(self.child.end, signal.SIGTERM)  # first, since a hanging daemon does not answer
            self._process = Process(self.child.pid)
            self._started, self._crew = self._process.rings(), self._threads()
            self._ends = ends.pop_all()

    def end(self) -> None:
        """End it and unmount everything that it mounted."""
        self._ends.close()

    def open(self, stack: Stack, ground: DiskImageSpec) -> DaemonBench:
        """Bring a stack up and check what it added; raises RigError with QEMU's message."""
        at, pid, monitor = self._warden.directory, self.child.pid, self._monitor
        places = ground.places(writable=ground.writes, socket=str(at / "disk.sock"), mountpoint=str(at / "disk"))
        Path(places.socket).unlink(missing_ok=True)
        if stack.export == "fuse":
            Path(places.mountpoint).touch()
        threads = thread_commands(stack)
        commands = daemon_commands(stack, places)
        before, there = self._process.rings(), self._threads()
        self._tell(threads)
        bare, brought = self._process.rings(), self._threads() - there
        self._tell(commands[len(threads) :])
        self._stack, self._told = stack, commands
        served = _served(stack, places, monitor, brought)
        checks = (*export_checks(stack, served), *_checks(stack, ground, self._process, monitor, bare))
        return DaemonBench(
            target=_target(stack, places),
            image=ground.image,
            command=command_line(PROGRAM, commands),
            processes={"daemon": pid},
            in_force=InForce(checks=checks),
            stack=stack,
            crew=self._crew | served.threads,
            spent=cpu_of(self._process),
            rings=self._process.rings(),
            loop_rings=self._started.count(IO_URING) > 0 or bare.count(IO_URING) > before.count(IO_URING),
            iothread=next(iter(served.threads)) if len(served.threads) == 1 else None,
            child=self.child,
            warden=self._warden,
        )

    def close(self) -> None:
        """Take the stack down and check that nothing of it is left; raises RigError when something is."""
        deadline = time.monotonic() + _GONE_SECONDS
        for command in undo_commands(self._told):
            self._monitor.execute(command.execute, command.arguments)
            # QEMU answers a deletion before the last client has disconnected
            while command.execute == "block-export-del" and self._monitor.execute("query-block-exports"):
                if time.monotonic() > deadline:
                    raise RigError(f"{PROGRAM} did not end its export within {_GONE_SECONDS:g} s")
                time.sleep(_TICK_SECONDS)
        left = self._monitor.execute("query-named-block-nodes")
        if left:
            raise RigError(f"{PROGRAM} still has the block node {left[0]['node-name']}")

    def hides(self, stack: Stack, proc: Path) -> str | None:
        """Name remains of another stack in the process that would make verification of this one impossible, None
        without any.

        A main loop keeps its io_uring and its AIO context. On a kernel that does not show their completions, it is
        not possible to see whether a stack uses them.
        """
        knob = None if self._stack is None else needs_new_process(self._stack, stack)
        if knob is not None:
            return f"{knob.id} is set when a process starts"
        if stack.disk.backend == "file" and Process(self.child.pid, proc).rings().unseen:
            return "this kernel does not show whether what an earlier arm left in the process is used by this one"
        return None

    def _threads(self) -> frozenset[int]:
        return frozenset(thread.tid for thread in self._process.threads())

    def _tell(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self._monitor.execute(command.execute, command.arguments)


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
    stack: Stack, ground: DiskImageSpec, process: Process, monitor: Monitor, bare: Rings
) -> tuple[Check, ...]:
    nodes: list[Mapping[str, Any]] = monitor.execute("query-named-block-nodes")
    limits = (
        monitor.execute("qom-get", {"path": "/objects/limits0", "property": "limits"}) if stack.disk.limits else None
    )
    checks: list[Check] = []
    if ground.image is not None and stack.disk.backend == "file":
        now = process.rings()
        checks.append(engine_check(stack.disk.aio, set(now.places) - set(bare.places), now))
        checks += cache_checks(stack, opened(process, *files_of(stack.disk, ground.image)), nodes)
    checks += rbd_checks(stack, nodes)
    return (*checks, *node_checks(stack, nodes, limits))
