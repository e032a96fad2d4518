# SPDX-License-Identifier: Apache-2.0
"""A load: one fio or virtune-load, from its job file to its JSON, watched while it runs."""

import contextlib
import functools
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from virtune import shell
from virtune.bench.live.exports import ExportRings
from virtune.bench.live.rings import TrialRings
from virtune.bench.pinned import pin_check, pin_load
from virtune.bench.port import HostCounters, Keep, LoadJob, LoadOutput, Window
from virtune.bench.verify.image import on_off, opened
from virtune.bench.watch import TICK_SECONDS, Moments, watch
from virtune.bounded import read_bounded
from virtune.fio.job import OPERATIONS
from virtune.model.errors import LoadError
from virtune.model.evidence import RINGS, Check
from virtune.model.stack import Stack
from virtune.model.target import FileTarget, Target
from virtune.probe.about import said_of_itself
from virtune.probe.fio import read_engines
from virtune.probe.process import IO_URING, NATIVE, Process

_CAUSE_SECONDS = 0.2
"""A load may notice the end of its rig before we do, so we wait this long for the rig's end."""

LOG_MS = 250
"""The interval of the log of IOPS over time: no shorter start-up transient was ever observed."""

_MAX_OUTPUT_BYTES = 64 * 1024**2

_COMPLAINT_BYTES = 64 * 1024
"""fio writes error messages before anything else."""


_SETTLE_SECONDS = {"fio": 0.3, "virtune-load": 0.05}
"""fio needs about half of this from its start until its ramp begins, and it ends its run that much later than asked;
our own generator takes 0.01 s for both. The counters are read inside the measured time, so that they cover nothing
else.
"""

_END_SECONDS = 0.05
"""How long before the end the counters are read."""


class Here(Protocol):
    """A stack that is loaded from this host: its target, the processes that serve it, its image."""

    target: Target
    processes: Mapping[str, int]
    image: Path | None
    stack: Stack

    def under_load(self, *, flushes: bool) -> tuple[Check, ...]:
        """Verify again while the load runs; only then does it show what does the I/O."""
        ...

    def trouble(self) -> str | None:
        """Say why the stack no longer runs, None while it does."""
        ...


def fio_engines(fio: str) -> frozenset[str]:
    """Return the engines of this fio; raises LoadError if it does not list them."""
    try:
        return frozenset(read_engines(said_of_itself(fio, "--enghelp", timeout_seconds=20)))
    except shell.CommandError as error:
        hint = f"`{fio} --enghelp` must list its engines at once; is that fio, and is it whole?"
        raise LoadError(f"fio does not say which engines it has: {error.message}", hint=hint) from None


def run_here(bench: Here, load: LoadJob, window: Window, keep: Keep, warden: shell.Warden) -> LoadOutput:
    """Run one load on this host to its end and return its output; raises LoadError with the reason without a result.

    The program is fio or virtune-load, which takes fio's options.
    """
    program, arguments = load.program, load.job.arguments
    name = Path(program).name
    job_file, output = warden.directory / "load.fio", warden.directory / "load.json"
    job_file.write_text(load.job.text)
    output.unlink(missing_ok=True)
    for old in (*_logs(warden.directory), *warden.directory.glob(f"{OPERATIONS}_*.log")):
        old.unlink()
    logging = [f"--write_iops_log={warden.directory / 'load'}", f"--log_avg_msec={LOG_MS}"]
    argv = [
        program,
        *arguments,
        *logging,
        "--output-format=json+",
        f"--output={output}",
        "--eta=never",
        str(job_file),
    ]
    with (
        keep.host(processes=bench.processes, image=bench.image) as host,
        warden.running(argv, name="load", ask=signal.SIGINT) as child,
    ):
        pin_load(child.pid, bench.stack.pins.load)
        rings = TrialRings()
        try:
            checks = watch(_Child(child, bench, load), _moments(window, host, load.job.program, child.pid, rings))
        finally:
            for _, content in rings.contents():
                keep.capture(RINGS, content)
        status = child.wait(0)
    if status:
        _require_rig(bench)
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit {status}"
        raise LoadError(f"{name} ended early: {how}", hint=_last_words(child, output))
    try:
        log = b"".join(read_bounded(path, _MAX_OUTPUT_BYTES) for path in _logs(warden.directory))
        operations = b"".join(read_bounded(path, _MAX_OUTPUT_BYTES) for path in _operations(warden.directory))
    except OSError as error:
        raise LoadError(f"a log of {name} cannot be read: {(error.strerror or '').lower()}") from None
    return LoadOutput(
        output=_read(output, child, name),
        log=log,
        command=" ".join(argv),
        checks=checks,
        operations=(operations,) if operations else (),
    )


def _moments(window: Window, host: HostCounters, program: str, pid: int, rings: TrialRings) -> Moments:
    def on_begin() -> None:
        host.add_process("load", pid)
        host.sample(mark="begin")
        rings.begin([functools.partial(ExportRings, pid)])

    def on_end() -> None:
        rings.end()
        host.sample(mark="stop")

    return Moments(
        begin_seconds=window.begins(_SETTLE_SECONDS[program]),
        end_seconds=window.ends(_END_SECONDS),
        patience_seconds=window.patience_seconds,
        on_begin=on_begin,
        on_end=on_end,
    )


def _logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("load_iops.*.log"))


def _operations(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"{OPERATIONS}_lat.*.log"))


def _require_rig(bench: Here) -> None:
    """Raise LoadError with the rig's failure, if that ended the load."""
    deadline = time.monotonic() + _CAUSE_SECONDS
    while True:
        if (trouble := bench.trouble()) is not None:
            raise LoadError(trouble)
        if time.monotonic() > deadline:
            return
        time.sleep(TICK_SECONDS)


class _Child:
    """A load that runs as our child process on this host."""

    def __init__(self, child: shell.Child, bench: Here, load: LoadJob) -> None:
        self._child, self._bench, self._load = child, bench, load
        self._looked = False

    def ended(self, *, due: bool) -> bool:  # noqa: ARG002 - its end is noticed without delay
        """Wait a tick for its end, successful or not. Raises LoadError when the rig is gone."""
        if self._child.wait(TICK_SECONDS) is not None:
            return True
        if (trouble := self._bench.trouble()) is not None:
            self._child.end(signal.SIGINT)
            raise LoadError(trouble)
        return False

    def stuck(self) -> None:
        """Return None: a process of this host is either slow or gone."""

    def stop(self) -> None:
        """End it, and all that it started."""
        self._child.end(signal.SIGINT, signal.SIGTERM)

    def look(self) -> tuple[Check, ...]:
        """Check the rig and the load itself."""
        pinned = pin_check(self._child.pid, self._bench.stack.pins.load)
        return (*self._bench.under_load(flushes=self._load.flushes), *pinned, *self._own())

    def _own(self) -> tuple[Check, ...]:
        """Verify how the load itself opened the target."""
        if not isinstance(self._bench.target, FileTarget):
            return ()
        name, process = Path(self._child.command[0]).name, Process(self._child.pid)
        over = self._child.poll() is not None
        # a load with few requests may end before the first check, or be looked at only before it began
        unlooked, self._looked = over and (self._load.workload.counted or not self._looked), True
        held, rings = opened(process, Path(self._bench.target.path)), process.rings()
        engine = "io_uring" if rings.count(IO_URING) else "libaio" if rings.count(NATIVE) else None
        seen = {
            "io_uring": f"{name} holds an io_uring",
            "libaio": f"{name} maps a kernel AIO context",
            None: f"{name} had ended before it was looked at" if over else "leaves no trace",
        }
        job = self._load.job
        # of several engines only some leave a trace, so any of them may be the visible one
        asked = engine if engine in job.engines else "+".join(sorted(job.engines))
        direct = on_off(job.direct)
        return (
            *self._several(self._bench.target, process),
            Check(setting="load.engine", asked=str(asked), found=engine, proof=seen[engine], hidden=unlooked),
            Check(setting="load.direct", asked=direct, found=held.direct, proof=held.proof, hidden=unlooked),
        )

    def _several(self, target: FileTarget, process: Process) -> tuple[Check, ...]:
        """Verify that the load opened all files of a target with several."""
        if not target.more:
            return ()
        paths = (target.path, *target.more)
        held = [path for path in paths if process.opened(Path(path))]
        # the jobs of a load begin and end one after another
        found = str(len(held)) if len(held) == len(paths) else None
        proof = f"the load holds {', '.join(held) or 'none of them'} open"
        over = self._child.poll() is not None
        return (Check(setting="disks.count", asked=str(len(paths)), found=found, proof=proof, hidden=over),)


def _read(output: Path, child: shell.Child, name: str) -> bytes:
    try:
        found = read_bounded(output, _MAX_OUTPUT_BYTES + 1)
    except OSError:
        raise LoadError(f"{name} left no output", hint=child.last_words()) from None
    if len(found) > _MAX_OUTPUT_BYTES:
        raise LoadError(f"{name}'s output is larger than {_MAX_OUTPUT_BYTES // 1024**2} MiB")
    return found


def _last_words(child: shell.Child, output: Path) -> str | None:
    """Return why a load ended: where it read something else than was written, else the end of its log."""
    with contextlib.suppress(OSError):
        said = read_bounded(child.log, _COMPLAINT_BYTES, from_end=True).decode(errors="replace")
        for line in said.splitlines():
            if "verify failed" in line:
                return shell.last_line(line)
    return child.last_words() or _first_complaint(output)


def _first_complaint(output: Path) -> str | None:
    """Return the first line of fio's error message; with --output it goes into that file."""
    try:
        said = read_bounded(output, _COMPLAINT_BYTES).decode(errors="replace")
    except OSError:
        return None
    return next((line.strip()[:300] for line in said.splitlines() if line.startswith("fio:")), None)
