# SPDX-License-Identifier: Apache-2.0
"""Runs `virtune` as a user would, in a process of its own, without paying for its imports each time.

A server that has imported all of virtune forks a child for each command line. The child gets its own environment,
working directory and streams, and ends as any Python program ends. A start then costs some milliseconds of CPU
instead of about a second. Where the interpreter itself must see the environment (locale, PYTHON*), a new one is
started.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn, TextIO

MESSAGE_BYTES_MAX = 2**20
_LENGTH = struct.Struct("!I")
_INTERPRETER = ("PYTHON", "LC_", "LANG")


class ForkServer:
    """The client's end: one command line at a time."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forkserver", str(theirs.fileno())],
                cwd=Path(__file__).parents[1],
                env=dict(os.environ) | {"OPENBLAS_NUM_THREADS": "1"},  # no thread may live where a child is forked
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    @property
    def pid(self) -> int:
        """The process whose children the programs are."""
        return self._process.pid

    def start(self, words: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> "Started":
        """Start `virtune` with these words, and go on beside it."""
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        ours, theirs = socket.socketpair()
        request = json.dumps({"words": list(words), "env": dict(env), "cwd": str(cwd)}).encode()
        socket.send_fds(self._ours, [_LENGTH.pack(len(request))], [its_out, its_err, theirs.fileno()])
        self._ours.sendall(request)
        for descriptor in (its_out, its_err, theirs.detach()):
            os.close(descriptor)
        return Started(_number(ours), ours, os.fdopen(out), os.fdopen(err))

    def run(
        self, words: Sequence[str], *, env: Mapping[str, str], cwd: Path, timeout: float
    ) -> "subprocess.CompletedProcess[str]":
        """Run `virtune` with these words. Raises TimeoutExpired, as `subprocess.run` does, and kills it then."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            request = json.dumps({"words": list(words), "env": dict(env), "cwd": str(cwd)}).encode()
            socket.send_fds(self._ours, [_LENGTH.pack(len(request))], [out.fileno(), err.fileno()])
            self._ours.sendall(request)
            pid = _number(self._ours)
            self._ours.settimeout(timeout)
            try:
                status = _number(self._ours)
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._ours.settimeout(None)
                _number(self._ours)
                raise subprocess.TimeoutExpired(list(words), timeout) from None
            finally:
                self._ours.settimeout(None)
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read().decode())
        return subprocess.CompletedProcess(list(words), status, *texts)

    def close(self) -> None:
        """End the server."""
        self._ours.close()
        self._process.wait(60)


class Started:
    """A program that was started and goes on, used as a `subprocess.Popen` with text streams is."""

    def __init__(self, pid: int, ends: socket.socket, stdout: TextIO, stderr: TextIO) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
        self.returncode: int | None = None
        self._ends = ends

    def poll(self) -> int | None:
        """The status with which it ended, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its status; raises TimeoutExpired."""
        if self.returncode is None:
            ready, _, _ = select.select([self._ends], [], [], timeout)
            if not ready:
                raise subprocess.TimeoutExpired("virtune", timeout or 0)
            self.returncode = _number(self._ends)
            self._ends.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read what it still says and wait for its end; raises TimeoutExpired."""
        with ThreadPoolExecutor(2) as readers:
            texts = [readers.submit(stream.read) for stream in (self.stdout, self.stderr)]
            try:
                said = [text.result(timeout) for text in texts]
                self.wait(timeout)
            except TimeoutError:
                self.kill()
                raise subprocess.TimeoutExpired("virtune", timeout or 0) from None
        for stream in (self.stdout, self.stderr):
            stream.close()
        return said[0], said[1]

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it may end between our look and the signal
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


def interpreter_alike(env: Mapping[str, str]) -> bool:
    """Whether an interpreter that was started with our environment would have started alike with `env`."""
    mine, theirs = (
        {name: value for name, value in one.items() if name.startswith(_INTERPRETER)} for one in (os.environ, env)
    )
    return mine == theirs


def _number(stream: socket.socket) -> int:
    data = _exactly(stream, 4)
    return int(struct.unpack("!i", data)[0])


def _exactly(stream: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = stream.recv(count - len(data))
        if not more:
            raise EOFError("the other end of the fork server is gone")
        data += more
    return data


def _import_all() -> None:
    import virtune

    for module in pkgutil.walk_packages(virtune.__path__, "virtune."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("scipy.special", "numpy"):
        importlib.import_module(name)
    from virtune.probe.host import host_facts

    host_facts("/tmp")  # so that the installed programs have said which they are


def _serve(stream: socket.socket) -> list[str]:
    """Fork a child for each request; returns, in the child, the words that it is to run.

    Who sends a third descriptor, a socket, is told there of a child that goes on: a keeper waits for it.
    """
    keepers: set[int] = set()
    while True:
        head, descriptors, _, _ = socket.recv_fds(stream, 4, 3)
        if not head:
            os._exit(0)
        keepers = {one for one in keepers if os.waitpid(one, os.WNOHANG)[0] == 0}
        head += _exactly(stream, 4 - len(head))
        request = json.loads(_exactly(stream, _LENGTH.unpack(head)[0]))
        goes_on = len(descriptors) == 3
        if goes_on and (keeper := os.fork()):
            keepers.add(keeper)
            for descriptor in descriptors:
                os.close(descriptor)
            continue
        teller = socket.socket(fileno=descriptors.pop()) if goes_on else stream
        pid = os.fork()
        if pid == 0:
            teller.close()
            stream.close()
            _become(request["env"], request["cwd"], descriptors)
            return [str(word) for word in request["words"]]
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(BrokenPipeError):
            teller.sendall(struct.pack("!i", pid))
            _, status = os.waitpid(pid, 0)
            teller.sendall(struct.pack("!i", os.waitstatus_to_exitcode(status)))
        if goes_on:
            os._exit(0)


def _become(env: Mapping[str, str], cwd: str, descriptors: Sequence[int]) -> None:
    for number, descriptor in zip((1, 2), descriptors, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # those of the server are made for another kind of file
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - it ends with the process
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    os.chdir(cwd)


def _main(descriptor: int) -> NoReturn:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _import_all()
    gc.collect()
    gc.freeze()  # a child's collector need not touch, and so copy, what was there before it
    words = _serve(socket.socket(fileno=descriptor))
    from virtune.cli import main

    sys.argv[1:] = words
    try:
        main()
    except SystemExit as end:
        _end(end.code if isinstance(end.code, int) else int(end.code is not None))
    except BaseException:  # noqa: BLE001 - as the interpreter does: it is shown, and the status is 1
        sys.excepthook(*sys.exc_info())
        _end(1)
    _end(0)


def _end(status: int) -> NoReturn:
    """End as the interpreter does, without taking thousands of modules apart, which costs half a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
