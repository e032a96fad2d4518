# SPDX-License-Identifier: Apache-2.0
"""Workloads: by name, written as fio options on one line, in a user's own fio job file, or as a running VM's disk
shows them.

What may be written where a workload is asked for:

    randread-4k                                 a profile
    randread-4k,iodepth=8                       a profile with some words changed
    rw=randread,bs=4k,iodepth=32                fio's words, separated by commas
    rw=randrw,bs=4k,8k,norandommap              what begins with a digit belongs to the value before it (bs=4k,8k)
    rw=randread,bs=4k + rw=write,bs=64k         jobs that run together, separated by `+` or `;`
    mine: name=reader,rw=randread + rw=write    `mine` names the workload, `name=` a job
    rw=randread + name=background,rw=randread,numjobs=2     a job named `background` only disturbs: no figure is of it
    rw=randread,number_ios=100,randseed=7       100 I/Os at 100 places, the same everywhere; each one's time is kept

Of a job file, which runs unchanged:

Read as fio 3.33 reads it: sections, a `[global]` that applies to what follows, `;` and `#` that end a line anywhere,
options without a value. Where fio would fail (`rw= read`) or read something else than a person does (`[global2]`,
which it takes for `[global]`), the file is refused with the reason.

QEMU's counters of a running VM's disk give the number of reads and writes, their mean size, queue depth and rate.
They do not give the offsets, which only the requests in the virtqueue show. Where these are not seen random access is
assumed, which read-ahead and caches do not flatter.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from zlib import crc32

from virtune.fio.options import ALIASES, NOTHING, SHAPING, check_together, milliseconds, read_option
from virtune.model.errors import PlanError
from virtune.model.live import DiskRates, Move
from virtune.model.text import did_you_mean, format_bytes, quoted
from virtune.model.workload import INLINE, Job, Workload, job

LONGEST = 4096
"""Characters of an inline workload; a longer one belongs into a job file."""

JOBS_MAX = 64
"""Jobs of one workload; clones are made with numjobs."""

_NAMED = re.compile(r"\s*(?P<name>[^=:,;+]*):(?P<words>.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_OPTION = re.compile(r"[a-z_][a-z0-9_-]*", re.ASCII)


_PROFILES = """
randread-4k: rw=randread bs=4k iodepth=32
    4 KiB random reads, 32 in flight: how many small reads the stack can carry
randwrite-4k: rw=randwrite bs=4k iodepth=32
    4 KiB random writes, 32 in flight: how many small writes the stack can carry
randread-4k-qd1: rw=randread bs=4k iodepth=1
    4 KiB random reads, one at a time: what one read costs from end to end
randwrite-4k-qd1: rw=randwrite bs=4k iodepth=1
    4 KiB random writes, one at a time: what one write costs from end to end
seqread-1m: rw=read bs=1m iodepth=8
    1 MiB sequential reads, 8 in flight: bandwidth, as in a scan or a backup
seqwrite-1m: rw=write bs=1m iodepth=8
    1 MiB sequential writes, 8 in flight: bandwidth, as in a restore or a copy
oltp-8k-70-30: rw=randrw rwmixread=70 bs=8k iodepth=16
    8 KiB random, 70 % reads, 16 in flight: pages of a transactional database
log-sync-16k: rw=write bs=16k iodepth=1 fsync=1
    16 KiB sequential writes, one at a time, a flush after each: a database's log
container-node: rw=randrw rwmixread=70 bs=16k iodepth=16
    16 KiB random, 70 % reads, 16 in flight, as of a node with containers{study 1}
log-collector: rw=write bs=16k iodepth=1 numjobs=4 fsync=32
    four streams of 16 KiB appended writes, a flush after every 32{study 1}
ci-agent: rw=randrw rwmixread=50 bs=64k iodepth=8
    64 KiB random, half reads and half writes, 8 in flight, as of builds{study 1}
light-database: rw=randrw rwmixread=80 bs=8k iodepth=4 fdatasync=16
    8 KiB random, 80 % reads, 4 in flight, a flush after every 16 writes{study 1}
io-engine: rw=randread bs=4k iodepth=32 numjobs=1 ioengine=libaio direct=1
    study 1: 4 KiB random reads, 32 in flight, by an application that keeps using libaio
"""
_STUDY_1 = "; where study 1 expects a faster engine to help, and measures nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A workload with a name and a description. `options` are the fio options of its one job."""

    name: str
    meaning: str
    options: Mapping[str, str]


_ENGINES = {
    f"fio-engines-{one}": (
        f"rw=randwrite bs=4k iodepth=1 numjobs=4 ioengine={one} direct=0 refill_buffers=0 norandommap=0",
        f"study 2: buffered 4 KiB random writes by four jobs through the page cache, engine {one}",
    )
    for one in ("sync", "psync", "libaio", "mmap", "splice", "io_uring")
}
PROFILES: Mapping[str, Profile] = {
    name: Profile(
        name=name,
        meaning=meaning.replace("{study 1}", _STUDY_1),
        options=dict(word.split("=", 1) for word in words.split()),
    )
    for name, words, meaning in (
        *re.findall(r"^(\S+): (.*)\n    (.*)$", _PROFILES, re.MULTILINE),
        *((name, *both) for name, both in _ENGINES.items()),
    )
}
"""Every single workload that has a name."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "four-corners": ("randread-4k", "randwrite-4k", "seqread-1m", "seqwrite-1m"),
    "latency": ("randread-4k-qd1", "randwrite-4k-qd1"),
    "where-it-helps": ("container-node", "log-collector", "ci-agent", "light-database"),
    "fio-engines": tuple(name for name in PROFILES if name.startswith("fio-engines-")),
}
"""Names that stand for several workloads, measured one after the other in every round."""


def parse_workload(text: str) -> tuple[Workload, ...]:
    """Read a workload as a user wrote it; the module's docstring describes the forms.

    Raises PlanError with the wrong word and, where one is close, a suggestion.
    """
    if len(text) > LONGEST or not text.isprintable():
        raise PlanError("a workload is one printable line", hint=f"at most {LONGEST} characters; or use a job file")
    match = _NAMED.fullmatch(text)  # a colon after the first `=` belongs to a value (rw=randread:8)
    name, words = ("", text) if match is None else (check_name(match["name"].strip(), "a workload"), match["words"])
    parts = [part.strip() for part in re.split("[;+]", words)]
    if len(parts) > JOBS_MAX:
        raise PlanError(f"{len(parts)} jobs in one workload are more than {JOBS_MAX}", hint="clones: numjobs=...")
    pieces = _pieces(parts[0])
    if len(parts) == 1 and _is_name(pieces[0]):
        return _from_profile(pieces[0], pieces[1:], name)
    where = f"workload {quoted(name or words.strip())}"
    jobs = tuple(_job(_pieces(part), where, number) for number, part in enumerate(parts, 1))
    if len({one.name for one in jobs}) < len(jobs):
        raise PlanError(f"{where}: two jobs have the same name")
    meaning = " + ".join(_words(one, number) for number, one in enumerate(jobs, 1))
    name = name or _fitting("_and_".join(_job_name(one) for one in jobs))
    return (Workload(name=name, meaning=f"{INLINE}{meaning}", jobs=jobs),)


def check_name(name: str, what: str) -> str:
    """Return the name of a workload, a job or an arm; raises PlanError when it is not made of safe characters."""
    if not _NAME.fullmatch(name):
        hint = "letters, digits, dots, dashes and underscores, at most 64, the first a letter or a digit"
        raise PlanError(f"{quoted(name)} cannot be the name of {what}", hint=hint)
    return name


def _pieces(text: str) -> list[str]:
    """Split at commas; a piece that begins with a digit goes on with the value before it."""
    pieces: list[str] = []
    for piece in text.split(","):
        stripped = piece.strip()
        if pieces and stripped[:1].isdigit() and "=" not in stripped:
            pieces[-1] += f",{stripped}"
        else:
            pieces.append(stripped)
    return pieces


def _is_name(piece: str) -> bool:
    """Whether a first piece names a profile: no assignment, and no flag such as `norandommap`."""
    return "=" not in piece and not (piece in SHAPING and SHAPING[piece].flag)


def _from_profile(wanted: str, changes: list[str], name: str) -> tuple[Workload, ...]:
    names = GROUPS.get(wanted) or ((wanted,) if wanted in PROFILES else ())
    if not names:
        guess = did_you_mean(wanted, (*PROFILES, *GROUPS))
        known = f"profiles: {', '.join((*GROUPS, *(p for p in PROFILES if not p.startswith('fio-engines-'))))}"
        raise PlanError(f"there is no workload profile {quoted(wanted)}", hint=guess or known)
    changed = _options(changes, f"workload {wanted}")
    found = []
    for profile in (PROFILES[each] for each in names):
        options = {**profile.options, **changed}
        check_together(options, where=f"workload {profile.name}")
        ending = "".join(f"-{_slug(key)}-{_slug(value)}" for key, value in changed.items())
        own = name if len(names) == 1 else f"{name}-{profile.name}" if name else ""
        meaning = profile.meaning + (f"; with {', '.join(changes)}" if changes else "")
        jobs = (job(profile.name, options),)
        found.append(Workload(name=own or _fitting(profile.name + ending), meaning=meaning, jobs=jobs))
    return tuple(found)


def _options(pieces: list[str], where: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for piece in pieces:
        key, equals, value = (word.strip() for word in piece.partition("="))
        if not _OPTION.fullmatch(key):
            raise PlanError(
                f"{where}: {quoted(piece)} is not option=value", hint="write rw=randread,bs=4k,iodepth=32"
            )
        canonical, read = read_option(key, value if equals else None, where=where, in_file=False)
        if canonical in options:
            raise PlanError(f"{where}: {canonical} is given twice")
        options[canonical] = read
    return options


def _job(pieces: list[str], where: str, number: int) -> Job:
    named = [piece.partition("=")[2].strip() for piece in pieces if piece.startswith("name=")]
    options = _options([piece for piece in pieces if not piece.startswith("name=")], where)
    if "rw" not in options:
        raise PlanError(f"{where}: a job needs rw=", hint="write rw=randread,bs=4k,iodepth=32, or a profile's name")
    check_together(options, where=where)
    return job(check_name(named[-1], "a job") if named else _unnamed(number), options)


def _words(one: Job, number: int) -> str:
    """Write a job as `--workload` takes it, with its name if it was given one."""
    named = [("name", one.name)] if one.name != _unnamed(number) else []
    return ",".join(f"{key}={value}" for key, value in (*named, *one.options))


def _unnamed(number: int) -> str:
    return f"job{number}"


def _job_name(one: Job) -> str:
    """Make a name out of a job that differs when it does: `randread-4k-qd32`, `rw-8k-qd16-rwmixread-70`."""
    options = one.as_dict()
    rw, bs = options.pop("rw", "read"), options.pop("bs", "4k")
    depth, clones = options.pop("iodepth", "1"), options.pop("numjobs", "1")
    name = f"{_slug(rw)}-{_slug(bs)}-qd{depth}" + (f"-j{clones}" if clones != "1" else "")
    return name + "".join(f"-{_slug(key)}-{_slug(value)}" for key, value in options.items())


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "_", text)


def _fitting(name: str) -> str:
    return name if len(name) <= 64 else f"{name[:55]}-{crc32(name.encode()):08x}"


CHARACTERS_MAX = 1024**2
"""The largest job file; fio's own examples are below 4 KiB, generated ones below 1 MiB."""

REASONS_MAX = 12
"""The most reasons listed; further ones are counted."""

LINE_MAX = 1000
"""fio reads lines into a buffer of fixed size and would take the rest of a longer one for the next line."""

_SECTION = re.compile(r"\[(?P<name>[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63})\]", re.ASCII)
_OWN_NAME = re.compile(r"name[ \t]*=[ \t]*(?P<name>.*?)[ \t]*", re.ASCII)
_LINE = re.compile(r"(?P<key>[A-Za-z_][A-Za-z0-9_-]*)(?P<rest>[ \t]*=(?P<value>.*))?", re.ASCII | re.DOTALL)


def read_job_file(text: str, name: str) -> Workload:
    """Read a job file into a workload that carries the text unchanged and its jobs with the globals folded in.

    Raises PlanError naming the file and, for every line that cannot be taken, the line and the reason.
    """
    label = file_label(name)
    if len(text) > CHARACTERS_MAX:
        raise PlanError(f"{label} is longer than {format_bytes(CHARACTERS_MAX)}, which no job file needs")
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise PlanError(f"{label} is no text in UTF-8")
    if "\0" in text:
        where = f"{label} line {text[: text.index(chr(0))].count(chr(10)) + 1}"
        raise PlanError(f"{where} has a NUL byte, and a job file is text", hint="is it the file you meant?")
    shared: dict[str, str] = {}
    jobs: list[tuple[str, dict[str, str]]] = []
    current: dict[str, str] | None = None
    reasons: list[PlanError] = []
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{label} line {number}"
        try:
            content = _content(line, where)
            if content.startswith("["):
                current = {}  # the options of an invalid section are checked too
                section = _section(content, where)
                current = shared if section == "global" else dict(shared)
                if section != "global":
                    jobs.append((section, current))
            elif content:
                _take(content, where, current)
        except PlanError as reason:
            reasons.append(reason)
    if reasons:
        raise _all_of(reasons, label)
    return _workload(label, text, jobs)


def _all_of(reasons: list[PlanError], label: str) -> PlanError:
    """Combine all reasons into one error, so that a file can be fixed at once."""
    if len(reasons) == 1:
        return reasons[0]
    lines = [
        reason.message.removeprefix(f"{label} ") + (f" ({reason.hint})" if reason.hint else "")
        for reason in reasons[:REASONS_MAX]
    ]
    more = len(reasons) - REASONS_MAX
    return PlanError(
        f"{label} cannot run as it is, for {len(reasons)} reasons",
        hint="change these lines, or take them out",
        details=[*lines, *([f"and {more} more"] if more > 0 else [])],
    )


def _take(content: str, where: str, current: dict[str, str] | None) -> None:
    """Read an option into its section."""
    if current is None:
        raise PlanError(f"{where}: {quoted(content)} stands before any section", hint="begin with [global] or a job")
    match = _OWN_NAME.fullmatch(content)
    if match is not None:
        current["name"] = _section(f"[{match['name']}]", where)
        return
    key, _, value = content.partition("=")
    if value.strip() in NOTHING.get(key.strip(), ()):
        return
    found = _LINE.fullmatch(content)
    if found is None:
        raise PlanError(f"{where}: {quoted(content)} is not option=value")
    key, said = found["key"], found["value"]
    option = SHAPING.get(ALIASES.get(key, key))
    if said is not None and said != said.lstrip() and option is not None and option.word:
        raise PlanError(
            f"{where}: fio takes the blank after {key}= for part of the value", hint=f"write {key}={said.strip()}"
        )
    name, read = read_option(key, None if said is None else said.strip(), where=where, in_file=True)
    current[name] = read


def own_times(workload: Workload) -> tuple[float | None, float | None]:
    """Return (seconds, ramp seconds) set in a job file, None where it leaves them to virtune.

    Raises PlanError when its jobs disagree: they run together, so they end together.
    """
    seconds = _one_time(workload, "runtime")
    return seconds, _one_time(workload, "ramp_time")


def _one_time(workload: Workload, key: str) -> float | None:
    if workload.verbatim is None:
        return None
    said = {milliseconds(job.as_dict()[key]) for job in workload.jobs if key in job.as_dict()}
    if len(said) > 1:
        raise PlanError(f"the jobs of {workload.name} have different {key}s", hint="jobs of a workload run together")
    return next((value / 1000 for value in said), None)


def file_label(name: str) -> str:
    """Return the file's name as a name for the workload: its last part, without characters that garble a table."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    stem = re.sub(r"\.(fio|job|ini|txt)$", "", last)
    return re.sub(r"[^A-Za-z0-9._-]+", "_", stem).strip("._-")[:64] or "job-file"


def _content(line: str, where: str) -> str:
    """Return a line without comments; refuse a line that fio would read differently from a person."""
    line = line.removesuffix("\r")
    if len(line) > LINE_MAX:
        raise PlanError(f"{where} is longer than {LINE_MAX} characters")
    content = re.split("[;#]", line, maxsplit=1)[0].strip(" \t")
    if any(not c.isprintable() and c != "\t" for c in content):
        raise PlanError(f"{where} has a character that cannot be printed")
    for sign, what in (("$", "variables such as ${X} and $ncpus"), ("`", "commands")):
        if sign in content:
            raise PlanError(f"{where}: virtune does not let a job file use {what}", hint="write the value itself")
    if content.startswith("include"):
        raise PlanError(f"{where}: virtune refuses to include other files", hint="put its lines into this file")
    return content


def _section(content: str, where: str) -> str:
    match = _SECTION.fullmatch(content)
    if match is None:
        hint = "a section is [name]: letters, digits, spaces, dots and dashes, at most 64"
        raise PlanError(f"{where}: {quoted(content)} is no section", hint=hint)
    name = match["name"].strip()
    if name != "global" and name.casefold().startswith("global"):
        hint = "write [global] for what is common to the jobs after it, or give the job another name"
        raise PlanError(f"{where}: fio may take [{name}] for [global]", hint=hint)
    return name


def _workload(label: str, text: str, jobs: list[tuple[str, dict[str, str]]]) -> Workload:
    if not jobs:
        raise PlanError(f"{label} has no job", hint="add a section such as [reader] with rw=randread")
    if len(jobs) > JOBS_MAX:
        raise PlanError(f"{label} has {len(jobs)} jobs, more than {JOBS_MAX}", hint="make clones with numjobs")
    # `name=` in a section, or in [global] for all that follow, wins over the section's own
    jobs = [(options.pop("name", section).replace(" ", "_"), options) for section, options in jobs]
    names = [name for name, _ in jobs]
    for name, options in jobs:
        if names.count(name) > 1:
            raise PlanError(f"{label} has two jobs named {name}", hint="give each its own name")
        check_together({"direct": "0", **options}, where=f"{label} [{name}]")
    count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    return Workload(
        name=label,
        meaning=f"the fio job file {label}: {count}",
        jobs=tuple(Job(name=name, options=tuple(options.items())) for name, options in jobs),
        verbatim=text,
    )


_BLOCK_MIN, _BLOCK_MAX = 512, 1024**2

_SECTOR = 512

_MOVES_MIN = 30
"""With fewer looks at the virtqueue nothing is said of places: the standard error of a share is up to 9 %."""

_NEAR = 2.0
"""A later request follows an earlier one if it begins at most so many times as far beyond it as the bytes between
them: requests differ in size, and only their mean is known."""

_STEPS = 400

_LIKELY = 1.92
"""Shares whose log likelihood is so much below the best one's are still 95 % likely (half of chi-squared's 3.84)."""

_NEVER = 1e-300

_KNOWN = 0.3
"""A share that may be anything within so much, with 95 %, is not told."""

_WHOLLY = 0.1
"""Up to this share of the others a load counts as random, or as sequential."""


def sequential_share(moves: Sequence[Move], rates: DiskRates) -> float | None:
    """Return the share of requests (0..1) that follow those before them on the disk; None where too few were seen, or
    too many lay between two looks.

    A look that comes k requests after another finds its request behind that one where all k followed, each with the
    share s, so with probability s**k; else it may lie there by chance, which is taken from how far the others jump.
    The most likely s of all looks is returned, if it is known well enough.
    """
    data = rates.reads + rates.writes
    if len(moves) < _MOVES_MIN or data <= 0 or not any(one.sectors for one in moves):
        return None
    near = _NEAR * (rates.read_bytes + rates.written_bytes) / data / _SECTOR
    seen = Counter((one.requests, 0 < one.sectors <= near * one.requests) for one in moves)
    far = [abs(one.sectors) for one in moves if not 0 < one.sectors <= near * one.requests]
    chances = {k: min(1.0, near * k / (2 * max(1, median(far)))) if far else 0.0 for k, _ in seen}

    def likely(share: float) -> float:
        there = {k: share**k + (1 - share**k) * chance for k, chance in chances.items()}
        return math.fsum(
            count * math.log(max(_NEVER, there[k] if follows else 1 - there[k]))
            for (k, follows), count in seen.items()
        )

    found = {share: likely(share) for share in ((2 * step + 1) / (2 * _STEPS) for step in range(_STEPS))}
    best = max(found, key=found.__getitem__)
    within = [share for share, one in found.items() if one >= found[best] - _LIKELY]
    return None if within[-1] - within[0] > _KNOWN else [*found].index(best) / (_STEPS - 1)


def workload_words(rates: DiskRates, sequential: float | None = None) -> str:
    """Return the load as fio options, as `--workload` takes them; empty where nothing was read or written.
    `sequential` is the share of requests that follow those before them, None if unknown.
    """
    reads, writes = rates.reads, rates.writes
    if reads + writes <= 0:
        return ""
    words = pattern_words(reads, writes, sequential or 0.0)
    sizes = [_block(rates.read_bytes, reads), _block(rates.written_bytes, writes)]
    told = [size_word(size) for size, count in zip(sizes, (reads, writes), strict=True) if count]
    words.append(f"bs={','.join(dict.fromkeys(told))}")
    # an idle disk has nothing in flight, so the depth is averaged over the busy time
    in_flight = (rates.read_ns + rates.write_ns) / 1e9 / rates.seconds
    words.append(f"iodepth={max(1, round(in_flight))}")
    if rates.flushes and writes:
        words.append(f"fsync={max(1, round(writes / rates.flushes))}")
    return ",".join(words)


def pattern_words(reads: int, writes: int, sequential: float) -> list[str]:
    """Return which of the requests are writes and which follow those before them, as fio options: of so many reads
    and writes, with that share (0..1) of sequential ones.
    """
    mixed, wholly = reads > 0 and writes > 0, sequential >= 1 - _WHOLLY
    words = [f"rw={'' if wholly else 'rand'}{'rw' if mixed else 'read' if reads else 'write'}"]
    if not wholly and sequential > _WHOLLY:
        words.append(f"percentage_random={round(100 * (1 - sequential))}")
    if mixed:
        words.append(f"rwmixread={min(99, max(1, round(100 * reads / (reads + writes))))}")
    return words


def rate_words(rates: DiskRates) -> str:
    """Return the rate of I/Os as fio options."""
    return f"rate_iops={max(1, round((rates.reads + rates.writes) / rates.seconds))}"


def _block(total: int, count: int) -> int:
    """Return the power of two nearest to the mean size of a request."""
    if not count or total <= 0:
        return _BLOCK_MIN
    return int(min(_BLOCK_MAX, max(_BLOCK_MIN, 2 ** round(math.log2(total / count)))))


def size_word(size: int) -> str:
    """Return a size in bytes as fio's options have it: in KiB where it is a whole number of them."""
    return f"{size // 1024}k" if size % 1024 == 0 else str(size)
