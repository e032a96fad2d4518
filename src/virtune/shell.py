# SPDX-License-Identifier: Apache-2.0
"""The one module that starts processes: argv only, never a shell, every wait with a deadline; and what brings each
Python module.

Commands that end by themselves go through `run`. Processes that must not outlive virtune (fio, qemu-storage-daemon)
are started by a `Warden`: it marks every child's environment with the run's id, and a small guard process outside our
session ends all processes with the mark when virtune is gone, even if it was killed.
"""

import codecs
import contextlib
import os
import platform
import re
import secrets
import select
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, NoReturn, Self

from virtune import warden
from virtune.bounded import read_bounded
from virtune.model.errors import NO_END, MissingToolError, VirtuneError, words_of

EXTRAS = {
    "numpy": "measure", "optuna": "measure", "scipy": "measure", "sqlalchemy": "measure",
    "jinja2": "report", "markupsafe": "report", "vl_convert": "report",
    "prometheus_client": "serve", "starlette": "serve", "uvicorn": "serve",
    "psycopg": "postgres", "pyarrow": "parquet", "distributed": "dask", "ansible": "fleet",
}  # fmt: skip
"""The modules that a small installation lacks, and the extra that brings each."""


def needs_of(part: str = "") -> list[str]:
    """Return the requirements of virtune itself, or of one of its extras, with their bounds and without markers."""
    import importlib.metadata

    every = [one.partition(";") for one in importlib.metadata.requires("virtune") or ()]
    return [need.strip() for need, _, marker in every if (f"'{part}'" in marker if part else "extra" not in marker)]


def extra(name: str) -> str:
    """Return what installs an optional part: the packages that it needs and this Python lacks, or all that it needs
    where it lacks none and one cannot be loaded. They have their own names, since of an index nothing named virtune
    is asked.
    """
    ours = needs_of(name)
    names = [one if "<" in one else re.split("[>=]", one)[0] for one in ours if not _installed(one)] or ours
    return f"`pip install {' '.join(map(shlex.quote, names))}`"


def _installed(requirement: str) -> bool:
    import importlib.metadata

    return any(importlib.metadata.distributions(name=re.split(r"[^\w.-]", requirement)[0]))


def missing_module(error: ImportError) -> MissingToolError | None:
    """Return what to say of a library that is not installed or cannot be loaded; None where it is no optional one."""
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        return None
    why = "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be loaded ({error})"
    what = f"the Python package {module.replace('_', '-')} {why}, and this needs it"
    return MissingToolError(what, hint=extra(EXTRAS[module]))


def require_modules(*names: str) -> None:
    """Raise ModuleNotFoundError for the first of these modules that is not installed; none of them is loaded."""
    import importlib.util

    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


GENERATOR = "virtune-load"
"""Our own load generator, optional everywhere: fio with libblkio can replace it, and other exports do not need it."""

GENERATOR_PLACES = (
    Path(sys.executable).parent,
    Path(__file__).resolve().parents[2] / "loadgen" / "target" / "release",
)
"""Places besides PATH: our Python's directory, where `tools/setup` keeps it up to date, and a checkout's build."""

SCRATCH = "/var/tmp/virtune-"  # noqa: S108 - whoever makes it first, it is looked at before it is used

_GRACE_SECONDS = 3.0
"""How long a process may take before the next, stronger signal. fio needs up to a second to write its result."""

_GUARD_SECONDS = 30.0
"""How long the guard may take to clean up. It takes 0.1 s, at most 5 s; a stopped guard (SIGSTOP) never ends."""

_OUTPUT_MAX = 64 * 1024**2
"""The most output of a short command. The largest is that of 50 libvirt domains, some 10 kB each."""

_WORDS_MAX = 20_000
"""The bytes at the end of a log that are read for its last line."""

_KILLED_SECONDS = 30.0
"""How long a killed process may take to end: one that waits for a disk that does not answer never does."""


class CommandError(VirtuneError):
    """A command failed or did not end in time; `command` is what was run."""

    def __init__(self, message: str, *, hint: str | None = None, output: str = "") -> None:
        super().__init__(message, hint=hint)
        self.output = output


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The result of a command: its exit status and its two streams as text."""

    status: int
    stdout: str
    stderr: str


def find(program: str) -> str:
    """Return the path of a program; raises MissingToolError with the package to install."""
    path = shutil.which(program)
    if path is None:
        from virtune.packages import hint_for

        raise MissingToolError(f"`{program}` is not installed", hint=hint_for(program))
    return path


def require_x86_64() -> None:
    """Raise MissingToolError on a host that virtune has no guest for."""
    if (machine := platform.machine()) != "x86_64":
        hint = "`--rig vhost-user` loads QEMU's block layer as a guest does"
        raise MissingToolError(f"virtune's own guests are for x86_64 only, and this host is {machine}", hint=hint)


def find_ansible(program: str, beyond: Path = Path(sys.executable).parent) -> str:
    """Return the path of a program of Ansible: from PATH, or beside our Python, where the extra `fleet` puts it.

    Raises MissingToolError with how to get it.
    """
    path = shutil.which(program) or shutil.which(program, path=str(beyond))
    if path is None:
        hint = "`pip install ansible-core` brings it, as the extra virtune[fleet] does"
        raise MissingToolError(f"`{program}` is not installed", hint=hint)
    return path


def become(command: Sequence[str]) -> NoReturn:
    """Let a program take this process's place, with its terminal: what must not be killed half-way is nobody's child.
    Raises CommandError where it cannot be started.
    """
    sys.stdout.flush()
    try:
        os.execvpe(command[0], list(command), _plain_environment())
    except OSError as error:
        raise CommandError(f"{command[0]} cannot be started: {words_of(error)}") from None


def find_generator(beyond: Sequence[Path] = GENERATOR_PLACES) -> str:
    """Return the path of `virtune-load`: from PATH, or from the first of these directories that holds it.

    Raises MissingToolError with how to get it, and what does without.
    """
    path = shutil.which(GENERATOR) or shutil.which(GENERATOR, path=os.pathsep.join(map(str, beyond)))
    if path is None:
        hint = "`pip install ./loadgen` in a checkout of virtune builds it; disk.export=nbd does without"
        raise MissingToolError(f"`{GENERATOR}` is not installed, and a vhost-user-blk export needs it", hint=hint)
    return path


def cache_directory() -> Path:
    """Return the user's cache directory for virtune, for files that can be created again."""
    return _absolute(os.environ.get("XDG_CACHE_HOME", ""), "~/.cache") / "virtune"


def data_directory() -> Path:
    """Return the user's data directory for virtune, for files that must not be lost."""
    return _absolute(os.environ.get("XDG_DATA_HOME", ""), "~/.local/share") / "virtune"


def proxmox_directory() -> Path:
    """Return where a Proxmox node configures its VMs; the environment's VIRTUNE_PROXMOX names another one."""
    return _absolute(os.environ.get("VIRTUNE_PROXMOX", ""), "/etc/pve/qemu-server")


def default_scratch() -> Path:
    """Return the default directory of scratch images: on a disk, unlike /tmp, and kept between runs.

    Each user has one, because a directory in which another user could replace files is not safe.
    """
    return Path(f"{SCRATCH}{os.geteuid()}")


def _absolute(named: str, otherwise: str) -> Path:  # the XDG Base Directory Specification ignores relative paths
    return Path(named) if named.startswith("/") else Path(otherwise).expanduser()


def run(
    command: Sequence[str],
    *,
    timeout_seconds: float,
    stdin: str | bytes | None = None,
    ok: tuple[int, ...] = (0,),
    place: Path | None = None,
    most_bytes: int = _OUTPUT_MAX,
    locale: str = "C",
    into: IO[bytes] | None = None,
    gently: bool = False,
) -> Output:
    """Run a short command to its end and return its output; raises CommandError with a line the user can paste.

    Its stdout is written `into` a file as it comes, where one is given, and is empty then. What must not be cut short
    is asked to end (SIGTERM) and waited for `gently`, and never killed.
    """
    with tempfile.TemporaryFile() as words:
        words.write(stdin if isinstance(stdin, bytes) else (stdin or "").encode())
        words.seek(0)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL if stdin is None else words,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=place,
                env=_plain_environment(locale),
            )
        except FileNotFoundError:
            raise MissingToolError(f"`{command[0]}` is not installed") from None
        except PermissionError:
            raise CommandError(f"not allowed to run `{command[0]}`") from None
    with process:
        try:
            done = _read_to_end(process, command, timeout_seconds, most_bytes, into)
        except BaseException:
            process.send_signal(signal.SIGTERM if gently else signal.SIGKILL)
            raise
    if done.status not in ok:
        raise CommandError(
            f"exit {done.status}: {shlex.join(command)}",
            hint=last_line(done.stderr) or last_line(done.stdout),
            output=done.stdout + done.stderr,
        )
    return done


def _read_to_end(
    process: "subprocess.Popen[bytes]",
    command: Sequence[str],
    timeout_seconds: float,
    most_bytes: int,
    into: IO[bytes] | None,
) -> Output:
    """Read what a command prints until it ends. Raises CommandError when it takes too long or prints too much."""
    deadline = time.monotonic() + timeout_seconds
    parts: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    size = 0
    with selectors.DefaultSelector() as open_ends:
        for name in parts:
            open_ends.register(getattr(process, name), selectors.EVENT_READ, name)
        while open_ends.get_map():
            ready = open_ends.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise CommandError(f"{NO_END} {timeout_seconds:g} s: {shlex.join(command)}")
            for key, _ in ready:
                found = os.read(key.fd, 65536)
                if into is not None and key.data == "stdout":
                    into.write(found)
                else:
                    parts[key.data].append(found)
                size += len(found)
                if not found:
                    open_ends.unregister(key.fileobj)
            if size > most_bytes:
                raise CommandError(f"more than {most_bytes // 1024**2} MiB were printed by: {shlex.join(command)}")
    try:
        status = process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise CommandError(f"{NO_END} {timeout_seconds:g} s: {shlex.join(command)}") from None
    stdout, stderr = (b"".join(parts[name]).decode(errors="replace") for name in ("stdout", "stderr"))
    return Output(status=status, stdout=stdout, stderr=stderr)


def last_line(text: str) -> str | None:
    """Return the last non-empty line, without control characters; None when there is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "".join(c for c in lines[-1] if c.isprintable())[:300] if lines else None


class Child:
    """A running child process: its pid, its log, and methods to end it."""

    def __init__(self, process: subprocess.Popen[bytes], command: Sequence[str], log: Path) -> None:
        self._process = process
        self.command = tuple(command)
        self.log = log

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return self._process.poll()

    def wait(self, timeout_seconds: float) -> int | None:
        """Wait for the end and return the exit status; None when the time is over first."""
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self, *signals: signal.Signals, killed_seconds: float = _KILLED_SECONDS) -> int:
        """Send each signal in turn, with a time limit each, then SIGKILL; returns the exit status.

        fio must get a signal before SIGKILL: killed at once, it cannot stop its workers, which would go on loading
        the disk that the next trial measures. Raises CommandError when the process does not end after SIGKILL.
        """
        for number in signals:
            self._send(number)
            self.wait(_GRACE_SECONDS)
        self._send(signal.SIGKILL)
        status = self.wait(killed_seconds)
        if status is None:
            raise CommandError(
                f"process {self.pid} ({self.command[0]}) does not end even when killed",
                hint="it waits in the kernel, perhaps for a disk that does not answer",
            )
        return status

    def _send(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def last_words(self) -> str | None:
        """Return the last line of its log."""
        with contextlib.suppress(OSError):
            return last_line(read_bounded(self.log, _WORDS_MAX, from_end=True).decode(errors="replace"))
        return None


class Terminal:
    """A program that runs on a pseudo-terminal, and its output there."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self._process, self._master = process, master
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")  # a read may end within a character
        self.ended = False

    def write(self, text: str) -> None:
        """Type some text; raises OSError when it has ended."""
        os.write(self._master, text.encode())

    def read(self, timeout_seconds: float) -> str:
        """Return the output within a time limit, as soon as there is any; empty without output."""
        if self.ended:
            time.sleep(timeout_seconds)  # a polling caller keeps its interval
            return ""
        if not select.select([self._master], [], [], timeout_seconds)[0]:
            return ""
        try:
            found = os.read(self._master, 65536)
        except OSError:  # EIO: the other end is closed
            found = b""
        self.ended = not found
        return self._decoder.decode(found, final=self.ended).replace("\r\n", "\n")


@contextlib.contextmanager
def on_terminal(command: Sequence[str]) -> Iterator[Terminal]:
    """Start a program that works only on a terminal, and end it with the block.

    It does not outlive us: when our end of the terminal is closed, its next read fails and it exits.
    """
    master, slave = os.openpty()
    try:
        process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=_plain_environment(), start_new_session=True
        )
    except OSError as error:
        os.close(master)
        raise CommandError(f"`{command[0]}` did not start: {error.strerror}") from None
    finally:
        os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        os.close(master)
        Child(process, command, Path(os.devnull)).end(signal.SIGTERM)


class Warden:
    """Starts processes that must not outlive virtune, and ends them. Use as a context manager.

    `directory` is a private directory for sockets, logs and mounts of this run; it is removed with the run. A guard
    that takes longer than `guard_seconds` to clean up is killed, and this process cleans up.
    """

    def __init__(self, name: str, *, guard_seconds: float = _GUARD_SECONDS) -> None:
        # Each run has a new id, so remains of an earlier run of the same study do no harm.
        self.run_id = f"{name}-{secrets.token_hex(2)}"
        self.directory = warden.run_directory(self.run_id)
        self._guard: subprocess.Popen[bytes] | None = None
        self._guard_seconds = guard_seconds
        self._lives: int | None = None
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        warden.sweep_abandoned()
        self._lives = warden.make_run_directory(self.directory, pid=os.getpid())
        before = signal.pthread_sigmask(signal.SIG_BLOCK, warden.DEAF_TO)  # the guard inherits this
        try:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", warden.__file__, self.run_id, str(self.directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in reversed(self._children):
            # a process that hangs in the kernel is left to the guard, which must notice our end
            with contextlib.suppress(CommandError):
                child.end(signal.SIGTERM)
        # The guard cleans up in every case, so that the path taken after a crash is exercised by every run.
        if self._guard is not None:
            assert self._guard.stdin is not None  # noqa: S101 - opened above with PIPE
            self._guard.stdin.close()
            try:
                self._guard.wait(self._guard_seconds)
            except subprocess.TimeoutExpired:  # it was stopped, or hangs: then we clean up here
                self._guard.kill()
                warden.sweep(self.run_id, self.directory)
        if self._lives is not None:
            os.close(self._lives)

    def start(self, command: Sequence[str], *, name: str, keep: tuple[int, ...] = ()) -> Child:
        """Start a process in its own session, with its output in `<directory>/<name>.log`.

        `keep` are our open descriptors that the process inherits under the same numbers.
        """
        log = self.directory / f"{name}.log"
        with log.open("ab") as stream:
            child = Child(self._popen(command, stream, keep), command, log)
        self._children.append(child)
        return child

    @contextlib.contextmanager
    def running(
        self,
        command: Sequence[str],
        *,
        name: str,
        ask: signal.Signals = signal.SIGTERM,
        keep: tuple[int, ...] = (),
    ) -> Iterator[Child]:
        """Start a process and end it with the block."""
        child = self.start(command, name=name, keep=keep)
        try:
            yield child
        finally:
            try:
                child.end(ask)
            finally:
                self._children.remove(child)

    def _popen(self, command: Sequence[str], log: IO[bytes], keep: tuple[int, ...]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env=_plain_environment() | {warden.MARK: self.run_id},
                start_new_session=True,
                pass_fds=keep,
            )
        except FileNotFoundError:
            raise MissingToolError(f"`{command[0]}` is not installed") from None
        except OSError as error:
            raise CommandError(f"`{command[0]}` did not start: {error.strerror}") from None


def _plain_environment(locale: str = "C") -> dict[str, str]:
    """Our environment with the C locale, so that numbers and messages can be parsed."""
    return dict(os.environ) | {"LC_ALL": locale, "LANG": locale}


def detach(command: Sequence[str], *, log: Path, keep: Sequence[int] = ()) -> int:
    """Start a program and leave it; returns its process id. `keep` are our open descriptors that it inherits.

    Hanging up a terminal or an SSH connection does not reach it, since it is of no session that they end, and neither
    does the guard of a run that called us. Raises OSError where it cannot be started.
    """
    with log.open("ab") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            cwd="/",
            env={name: value for name, value in os.environ.items() if name != warden.MARK},
            start_new_session=True,
            pass_fds=tuple(keep),
        )
    process.returncode = 0  # it is waited for by nobody, and that is meant
    return process.pid
