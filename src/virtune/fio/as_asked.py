# SPDX-License-Identifier: Apache-2.0
"""Verify a load like a setting: what its result says that ran is compared with the job that it was given.

A program echoes the options that it took, and its figures follow from them. Either may be wrong alone: a wrapper that
changes an option changes both, one that edits the result may forget one of them. What a program does not say stays
unverified. The figures' bounds are in `fio.consistency`; here they are those of what was asked, not of the echo.
"""

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from virtune.fio.consistency import contradictions, seconds_of
from virtune.fio.generator import FIO, PROGRAM
from virtune.fio.job import FioJob
from virtune.fio.options import ALIASES, IN_FILES, NOTHING, SHAPING, size_of
from virtune.fio.results import FioObject, entries_of, objects, options_of, read_result, result_of, text_of
from virtune.model.errors import ReadError
from virtune.model.evidence import Check, of_guest
from virtune.model.measurement import FioResult, LoadResult
from virtune.model.workload import BACKGROUND, Job

ADDED = frozenset({"write_iops_log", "log_avg_msec", "exec_prerun", "description"})
"""Options that are added to a job, none of which shapes it: its log over time, the barrier of guests, its name."""

_IDENTITY = re.compile(
    r"virtune/(?P<study>[A-Za-z0-9._-]{1,64})/(?P<trial>[0-9]{1,10})/(?P<attempt>[0-9]{1,10})/[0-9]{1,4}/[0-9a-f]{16}"
)
_DESCRIBED = re.compile(r"^(?:.* --)?description=(\S[^\n]*)", re.MULTILINE)

CLOCK_SECONDS = 0.1
"""A clock that was set by more than this while a load ran dates nothing; it is also what two reads may be apart."""

LOG_SECONDS = 0.25
"""The interval of the log of IOPS over time: no shorter start-up transient was ever observed."""

_LOGGED_SECONDS = 1.0
"""In a shorter load the last line of one clone may be at the time of the next one's first."""

_LOG_SLACK, _BURST = 0.05, 3.0
"""A load ends some I/Os after its last line, and may be quicker at its end than before. Of 24 loads of all kinds at
most 1 in 50 I/Os was beside the log."""

_LATE = 0.1
"""A clone that waits for a CPU writes its lines late; this share of the time is no early end."""

_PACED = (
    "rate", "thinktime", "number_ios", "io_size", "loops", "exitall", "startdelay", "stonewall", "latency_",
    "steadystate",
)  # fmt: skip
"""Options (by their first letters) with which a clone may do nothing for long, or end before its time."""

_ECHO = "the options of job {} as its result echoes them"


def identity_of(study: str, trial: int, attempt: int, guest: int, chance: str) -> str:
    """Return the word by which the result of a guest's load is told from every other; `chance` are 16 random hex
    digits, so that nobody has a result of it before it runs.
    """
    return f"virtune/{study}/{trial}/{attempt}/{guest}/{chance}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """When a load ran by this host's clock, in seconds since 1970, and how many seconds passed meanwhile."""

    begun: float
    ended: float
    seconds: float


def load_checks(
    job: FioJob, output: bytes, *, ran: Ran | None = None, log: bytes = b"", guest: int = 0
) -> tuple[Check, ...]:
    """Return which program ran, and whether it ran its job: a check for each difference, or one that there is none.

    `ran` is when it ran, None where its clock is another one. `log` are the logs of IOPS over time of all its clones,
    one after the other; empty where there is none, or not of this job alone. An output that cannot be read is judged
    elsewhere.
    """
    try:
        document = next((found for _, found in objects(text_of(output))), None)
        result = None if document is None else result_of(document)
    except ReadError:
        return ()
    if document is None or result is None:
        return ()
    found = None if result.version is None else PROGRAM if result.version.startswith(PROGRAM) else FIO
    checks = [_check("program", job.program, found, f"the result comes from {result.version}")]
    wrong = [*_of_clock(document, result, ran), *_of_jobs(job, document, result)]
    # only what ran a load can know it by name
    own = {text for one in job.asked for text in _texts(one.as_dict(), "description")}
    if job.identity and (other := _other(job.identity, own, document)) is not None:
        wrong.insert(0, _check("result", "of this load", other, "the description in the result of every job"))
    if not wrong:
        most = sum(one.depth for one in job.asked)
        wrong += _of_log(job, result, log) if found == FIO else own_log_checks(result, log, most)
    if wrong:
        checks += wrong
    elif any(options_of(document, entry) is None for entry in entries_of(document)):
        why = "its result does not say with which options it ran; its figures do not contradict those of the job"
        checks.append(replace(_check("job", "as written", None, why), hidden=True))
    else:
        why = "the result's options are those of the job; sizes, mix, flushes, depth, time and counts agree with them"
        checks.append(_check("job", "as written", "as written", why))
    return tuple(replace(check, guest=guest) for check in checks)


def depth_check(output: bytes, asked: int) -> Check:
    """Check the depth of every job but those that only make a background."""
    found: set[str] = set()
    with contextlib.suppress(ReadError):
        loads = [one for one in read_result(text_of(output)).loads if one.name != BACKGROUND]
        found = {dict(one.options or ()).get("iodepth", "") for one in loads} - {""}
    return Check(
        "workload.iodepth",
        str(asked),
        " and ".join(sorted(found)) or None,
        "the options of every job in the result of the load",
    )


def _check(what: str, asked: str, found: str | None, proof: str) -> Check:
    return Check(f"load.{what}", asked, found, proof)


def _other(identity: str, own: Iterable[str], document: FioObject) -> str | None:
    """Say which result it is, None where it is the one of this identity. `own` are what a job file says itself.

    fio writes it beside each clone's figures, and in its options or in those of all jobs.
    """
    entries = entries_of(document)
    named = [{*_texts(entry, "desc"), *_texts(entry.get("job options"), "description")} for entry in entries]
    told = {*_texts(document.get("global options"), "description")}.union(*named)
    others = sorted(told - {identity, *own})
    if not others and identity in told and all(named):
        return None
    of = next((found for one in others if (found := _IDENTITY.fullmatch(one))), None)
    return "one that names no trial" if of is None else f"that of {_trial_in(of)}"


def _texts(found: object, key: str) -> Iterator[str]:
    if isinstance(found, dict) and isinstance(text := found.get(key), str):
        yield text


def _trial_in(found: re.Match[str]) -> str:
    return f"trial {found['trial']}, attempt {found['attempt']}, of study {found['study']}"


def another_trial(parts: Mapping[str, bytes], *, study: str, trial: int, attempt: int) -> str | None:
    """Say which result the captures of a trial hold; None where it is its own, or where they were kept by a virtune
    that gave its loads no identity. A trial of guests has those of each.
    """
    for guest in itertools.takewhile(lambda one: of_guest("fio.json", one) in parts, itertools.count()):
        job, output = (parts.get(of_guest(name, guest), b"") for name in ("job.fio", "fio.json"))
        said = [*_descriptions(job), *(_descriptions(parts.get("command.txt", b"")) if not guest else ())]
        if (given := next((found for one in said if (found := _IDENTITY.match(one))), None)) is None:
            continue
        if (given["study"], int(given["trial"]), int(given["attempt"])) != (study, trial, attempt):
            return f"that of {_trial_in(given)}"
        own = {one for one in said if not _IDENTITY.match(one)}
        with contextlib.suppress(ReadError):  # what cannot be read is judged elsewhere
            document = next((found for _, found in objects(text_of(output))), {})
            if (other := _other(given[0], own, document)) is not None:
                return other
    return None


def _descriptions(text: bytes) -> list[str]:
    return _DESCRIBED.findall(text.decode(errors="replace"))


def _of_clock(document: FioObject, result: FioResult, ran: Ran | None) -> Iterator[Check]:
    """Check that the result was written while its load ran, and does not tell of more time than that took."""
    if ran is None:
        return
    exact, written = document.get("timestamp_ms"), result.ended
    longest = result.seconds
    first = ran.begun + longest - (CLOCK_SECONDS if exact else 1 + CLOCK_SECONDS)
    steady = abs(ran.ended - ran.begun - ran.seconds) < CLOCK_SECONDS
    if longest > ran.seconds + CLOCK_SECONDS:
        found, proof = f"{longest:g} s", "the time in the result, and the time that passed"
        yield _check("runtime", f"at most {ran.seconds:.3g} s", found, proof)
    elif written is not None and steady and not first <= written <= ran.ended + CLOCK_SECONDS:
        when = "before this load can have ended" if written < first else "after this load had ended"
        away = abs(written - (first if written < first else ran.ended))
        proof = "the time in the result, and this host's clock"
        yield _check("result", "of this load", f"one written {away:,.1f} s {when}", proof)


def _of_log(job: FioJob, result: FioResult, log: bytes) -> Iterator[Check]:
    """Check by the log over time how many clones ran, and that each ran to the end: one of many that is missing, or
    ends early, is less than what the sum of their run times may be off by.

    fio writes a line of a clone once an interval, as soon as an I/O completes; so where none took as long as that, a
    clone has its first line within two intervals and its last one no more than two before its end.
    """
    named = [_plain(one.as_dict()) for one in job.asked]
    seconds = min(
        (seconds_of(one, "runtime") or 0.0 for one in named if one.get("time_based", "0") != "0"), default=0.0
    )
    paced = any(name.startswith(_PACED) and value != "0" for one in named for name, value in one.items())
    slowest = [stream.lat.max_ns if stream.lat is not None else None for stream in result.streams]
    quick = all(one is not None and one < LOG_SECONDS * 1e9 for one in slowest)
    if not log or seconds < _LOGGED_SECONDS or paced or not quick:
        return
    ends = _ends_of_clones(log)
    clones = sum(int(one.get("numjobs", "1")) for one in named)
    if len(ends) != clones:
        yield _check("numjobs", str(clones), str(len(ends)), "the logs over time, one of each clone")
    elif min(ends) < (least := (1 - _LATE) * seconds - 2 * LOG_SECONDS):
        proof = f"the log over time of one of {clones} clones, of which each has a line after {least:g} s"
        yield _check("runtime", f"{seconds:g} s", f"{min(ends):g} s", proof)


def own_log_checks(result: FioResult, log: bytes, in_flight: int = 0) -> Iterator[Check]:
    """Check that virtune-load's result has the I/Os of its log over time: all that were logged, and besides those of
    the last interval, which no line is written for: what ended in it, and what was `in_flight` at the end. A result
    of another run has others, whatever its date.
    """
    counts: dict[float, float] = {}
    times: list[float] = []
    with contextlib.suppress(ValueError, IndexError):
        for line in log.splitlines():
            at, rate = (float(one) for one in line.split(b",")[:2])
            times.append(at)
            counts[at] = counts.get(at, 0.0) + rate * times[0] / 1000
    logged, lines, told = sum(counts.values()), len(times), sum(load.ios for load in result.loads)
    if lines < 2:
        return
    if not times[0] > 0:  # none is written before an interval is over
        yield _check(
            "result", "of this load", "not told", f"the log over time, whose first line is of {times[0]:g} ms"
        )
        return
    rest = max(0.0, result.seconds - times[-1] / 1000) * max(counts.values()) / (times[0] / 1000)
    if not logged - lines <= told <= (1 + _LOG_SLACK) * logged + lines + _BURST * rest + in_flight:
        proof = f"the log over time, which counts {logged:,.0f} I/Os in {lines} lines"
        yield _check("result", "of this load", f"one of {told:,} I/Os", proof)


def _ends_of_clones(log: bytes) -> list[float]:
    """Return the time of each clone's last line, in seconds: the next one's lines begin anew."""
    ends: list[float] = []
    for line in log.splitlines():
        with contextlib.suppress(ValueError):
            at = int(line.partition(b",")[0]) / 1000
            if ends and at >= ends[-1]:
                ends[-1] = at
            else:
                ends.append(at)
    return ends


def _of_jobs(job: FioJob, document: FioObject, result: FioResult) -> Iterator[Check]:
    """Check every job of a result against the one that was asked for."""
    entries, meant = entries_of(document), _entries_meant(job.asked)
    if meant is None:
        return
    if len(entries) != len(meant):
        yield _check("jobs", str(len(meant)), str(len(entries)), "the jobs in the result")
        return
    ends_all = any(one.get("exitall", "0") != "0" or one.get("steadystate", "") for one in job.asked)
    silent = frozenset(line.strip() for line in job.text.splitlines() if "=" not in line)
    for (asked, clones), entry, load in zip(meant, entries, result.loads, strict=True):
        if load.name.replace(" ", "_") != asked.name:
            yield _check("name", asked.name, load.name, "the jobs in the result")
        echo = options_of(document, entry)
        yield from () if echo is None else _of_echo(asked, echo, silent)
        yield from _of_figures(asked, clones, entry, load, ends_all=ends_all)


def _entries_meant(asked: Sequence[Job]) -> list[tuple[Job, int]] | None:
    """Return the job of each entry of a result and the number of its clones; None where sections share an entry, of
    which the result echoes only one.
    """
    meant: list[tuple[Job, int]] = []
    shared = False
    for job in asked:
        clones, grouped = int(job.get("numjobs", "1")), job.get("group_reporting", "0") != "0"
        if grouped and shared and job.get("new_group", "0") == "0":
            return None
        meant += [(job, clones)] if grouped else [(job, 1)] * clones
        shared = grouped
    return meant


def _of_echo(job: Job, echo: Mapping[str, str], silent: frozenset[str]) -> Iterator[Check]:
    """Compare the options one by one. fio does not echo what stands in a file without a value: `silent`."""
    asked = {name: value for name, value in _plain(job.as_dict()).items() if name not in ADDED}
    found = {name: value for name, value in _plain(echo).items() if value not in NOTHING.get(name, ())}
    proof = _ECHO.format(job.name)
    for name, value in asked.items():
        option = SHAPING.get(name) or IN_FILES.get(name)
        unsaid = name in silent and option is not None and option.flag
        if name not in found and not unsaid:
            yield _check(name, value, "its default", proof)
        elif name in found and _meaning(found[name]) != _meaning(value):
            yield _check(name, value, found[name], proof)
    for name in found.keys() - asked.keys() - ADDED:
        yield _check(name, "its default", found[name], proof)


def _plain(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by their usual names; `buffered=0` is fio's other way to write `direct=1`."""
    named = {ALIASES.get(name, name): value for name, value in options.items()}
    if (buffered := named.pop("buffered", None)) in ("0", "1"):
        named["direct"] = "1" if buffered == "0" else "0"
    return named


def _meaning(value: str) -> tuple[int | str, ...]:
    """Return what a value says, however its sizes are written."""
    return tuple(part if (size := size_of(part)) is None else size for part in re.split("([,:/-])", value))


def _of_figures(job: Job, clones: int, entry: FioObject, load: LoadResult, *, ends_all: bool) -> Iterator[Check]:
    """Compare the figures of one entry with the options of its job. `ends_all`: one job may end the others early,
    or being steady all of them.
    """
    options = _plain(job.as_dict())
    if ends_all:
        options = {name: value for name, value in options.items() if name not in ("runtime", "number_ios")}
    syncs, runtime = 0 if "sync" in entry else None, entry.get("job_runtime")
    spent = runtime / 1000 if isinstance(runtime, int) else None  # of all clones together
    for one in contradictions(load, options, jobs=clones, syncs=syncs, spent=spent):
        yield _check(one.option, one.asked, one.found, f"the figures of job {job.name}: {one.proof}")
