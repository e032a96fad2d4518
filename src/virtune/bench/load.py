# SPDX-License-Identifier: Apache-2.0
"""A load: one fio or virtune-load, from its job file to its JSON, watched while it runs."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from virtune import shell
from virtune.bench.port import Bench
from virtune.bench.verify import process as in_force
from virtune.fio.job import OPERATIONS
from virtune.model.errors import LoadError
from virtune.model.evidence import Check
from virtune.model.target import FileTarget
from virtune.probe.fio import read_engines

_PATIENCE_SECONDS = 30.0
"""How long past its run time a load may take before it is held to be stuck: on a disk that answers at all, fio ends
within a second of its `runtime`, since it only waits for what is in flight."""

_TICK_SECONDS = 0.02
"""How often fio and the rig are looked at; the end of fio is noticed without delay."""

_CAUSE_SECONDS = 0.2
"""A load may notice sooner than we do that its rig is gone, so the rig is given this long to be seen ended."""

LOG_MS = 250
"""How fine the log of IOPS over time is: no start-up transient was ever seen below this (method, 1)."""

_MAX_OUTPUT_BYTES = 64 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a load that came to its end left: its JSON as it came, and what was seen in force while it ran.

    `log` is what it did over the measured time, in fio's form (`ms, IOPS, direction, ...`), all jobs after another.
    `beside` is the output of loads that ran with it in other guests. `operations` is the log of every single I/O, of
    each of them, where the job asked for it.
    """

    output: bytes
    log: bytes
    command: str
    checks: tuple[Check, ...]
    beside: tuple[bytes, ...] = ()
    operations: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """When, after the start of the load, something is to be done: called once each, in this order."""

    begin_seconds: float
    end_seconds: float
    on_begin: Callable[[int], None]
    on_end: Callable[[], None]


def fio_engines(fio: str) -> frozenset[str]:
    """Return the engines that this fio offers."""
    return frozenset(read_engines(shell.run([fio, "--enghelp"], timeout_seconds=20).stdout))


def run_load(
    program: str,
    job: str,
    arguments: tuple[str, ...],
    *,
    bench: Bench,
    warden: shell.Warden,
    moments: Moments,
    flushes: bool,
) -> Loaded:
    """Run one load to its end and return its output; raises LoadError with the reason when it has none.

    `program` is the path of fio or of virtune-load, which takes fio's words.
    """
    name = Path(program).name
    job_file, output = warden.directory / "load.fio", warden.directory / "load.json"
    job_file.write_text(job)
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
    with warden.running(argv, name="load", ask=signal.SIGINT) as child:
        checks = _watch(child, bench, moments, flushes=flushes)
        status = child.wait(0)
    if status:
        _require_rig(bench)
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit {status}"
        raise LoadError(f"{name} ended early: {how}", hint=child.last_words() or _first_complaint(output))
    log = b"".join(_bounded(path) for path in _logs(warden.directory))
    operations = b"".join(_bounded(path) for path in _operations(warden.directory))
    return Loaded(
        output=_read(output, child, name),
        log=log,
        command=" ".join(argv),
        checks=checks,
        operations=(operations,) if operations else (),
    )


def _logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("load_iops.*.log"))


def _operations(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"{OPERATIONS}_lat.*.log"))


def _bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_OUTPUT_BYTES)


def _require_rig(bench: Bench) -> None:
    """Raise LoadError with what befell the rig, if it is that which ended the load."""
    deadline = time.monotonic() + _CAUSE_SECONDS
    while True:
        if (trouble := bench.trouble()) is not None:
            raise LoadError(trouble)
        if time.monotonic() > deadline:
            return
        time.sleep(_TICK_SECONDS)


def _watch(child: shell.Child, bench: Bench, moments: Moments, *, flushes: bool) -> tuple[Check, ...]:
    started = time.monotonic()
    deadline = started + moments.end_seconds + _PATIENCE_SECONDS
    checks: tuple[Check, ...] = ()
    begun = ended = looked = False
    half = (moments.begin_seconds + moments.end_seconds) / 2
    while child.wait(_TICK_SECONDS) is None:
        passed = time.monotonic() - started
        if (trouble := bench.trouble()) is not None:
            child.end(signal.SIGINT)
            raise LoadError(trouble)
        if not begun and passed >= moments.begin_seconds:
            begun = True
            moments.on_begin(child.pid)
        elif not looked and passed >= half:
            looked = True
            checks = (*bench.under_load(flushes=flushes), *_load_checks(child, bench))
        elif not ended and passed >= moments.end_seconds:
            ended = True
            moments.on_end()
        if time.monotonic() > deadline:
            child.end(signal.SIGINT, signal.SIGTERM)
            raise LoadError(f"the load did not end {_PATIENCE_SECONDS:g} s after its run time: it is stuck")
    return checks


def _load_checks(child: shell.Child, bench: Bench) -> tuple[Check, ...]:
    """Say whether the load itself holds the target with O_DIRECT. Who knows the workload judges asked and found."""
    if not isinstance(bench.target, FileTarget):
        return ()
    name = Path(child.command[0]).name
    found, proof = in_force.direct_of(child.pid, Path(bench.target.path))
    held = in_force.engines_of(child.pid)
    engine = "io_uring" if held.rings else "libaio" if held.contexts else None
    seen = {
        "io_uring": f"{name} holds an io_uring",
        "libaio": f"{name} maps a kernel AIO context",
        None: "leaves no trace",
    }
    return (
        Check(setting="load.engine", asked=engine or "unknown", found=engine, proof=seen[engine]),
        Check(setting="load.direct", asked=found or "unknown", found=found, proof=proof),
    )


def _read(output: Path, child: shell.Child, name: str) -> bytes:
    try:
        if output.stat().st_size > _MAX_OUTPUT_BYTES:
            raise LoadError(f"{name}'s output is larger than {_MAX_OUTPUT_BYTES} bytes")
        return output.read_bytes()
    except OSError:
        raise LoadError(f"{name} left no output", hint=child.last_words()) from None


def _first_complaint(output: Path) -> str | None:
    """Return fio's first line of complaint; with --output it goes into that file."""
    try:
        with output.open(errors="replace") as lines:
            return next((line.strip()[:300] for line in lines if line.startswith("fio:")), None)
    except OSError:
        return None
