# SPDX-License-Identifier: Apache-2.0
"""Workloads by name, and workloads written as fio options on one line.

What may be written where a workload is asked for:

    randread-4k                                 a profile
    randread-4k,iodepth=8                       a profile with some words changed
    rw=randread,bs=4k,iodepth=32                fio's words, separated by commas
    rw=randrw,bs=4k,8k,norandommap              what begins with a digit belongs to the value before it (bs=4k,8k)
    rw=randread,bs=4k + rw=write,bs=64k         jobs that run together, separated by `+` or `;`
    mine: name=reader,rw=randread + rw=write    `mine` names the workload, `name=` a job
    rw=randread + name=background,rw=randread,numjobs=2     a job named `background` only disturbs: no figure is of it
    rw=randread,number_ios=100,randseed=7       100 I/Os at 100 places, the same everywhere; each one's time is kept
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

from virtune.fio.options import SHAPING, check_together, read_option
from virtune.model.errors import PlanError
from virtune.model.text import did_you_mean, quoted
from virtune.model.workload import INLINE, Job, Workload, job

LONGEST = 4096
"""Characters of an inline workload; a longer one belongs into a job file."""

JOBS_MAX = 64
"""Jobs of one workload; clones are made with numjobs."""

_NAMED = re.compile(r"\s*(?P<name>[^=:,;+]*):(?P<words>.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_OPTION = re.compile(r"[a-z_][a-z0-9_-]*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A workload with a name and a description. `options` are the fio options of its one job."""

    name: str
    meaning: str
    options: Mapping[str, str]


def _profile(name: str, meaning: str, words: str) -> Profile:
    return Profile(name=name, meaning=meaning, options=dict(word.split("=", 1) for word in words.split()))


_STUDY_2 = "study 2: buffered 4 KiB random writes by four jobs through the page cache, engine {}"

PROFILES: Mapping[str, Profile] = {
    profile.name: profile
    for profile in (
        _profile(
            "randread-4k",
            "4 KiB random reads, 32 in flight: how many small reads the stack can carry",
            "rw=randread bs=4k iodepth=32",
        ),
        _profile(
            "randwrite-4k",
            "4 KiB random writes, 32 in flight: how many small writes the stack can carry",
            "rw=randwrite bs=4k iodepth=32",
        ),
        _profile(
            "randread-4k-qd1",
            "4 KiB random reads, one at a time: what one read costs from end to end",
            "rw=randread bs=4k iodepth=1",
        ),
        _profile(
            "randwrite-4k-qd1",
            "4 KiB random writes, one at a time: what one write costs from end to end",
            "rw=randwrite bs=4k iodepth=1",
        ),
        _profile(
            "seqread-1m",
            "1 MiB sequential reads, 8 in flight: bandwidth, as in a scan or a backup",
            "rw=read bs=1m iodepth=8",
        ),
        _profile(
            "seqwrite-1m",
            "1 MiB sequential writes, 8 in flight: bandwidth, as in a restore or a copy",
            "rw=write bs=1m iodepth=8",
        ),
        _profile(
            "oltp-8k-70-30",
            "8 KiB random, 70 % reads, 16 in flight: pages of a transactional database",
            "rw=randrw rwmixread=70 bs=8k iodepth=16",
        ),
        _profile(
            "log-sync-16k",
            "16 KiB sequential writes, one at a time, a flush after each: a database's log",
            "rw=write bs=16k iodepth=1 fsync=1",
        ),
        *(
            _profile(name, f"{meaning}; where study 1 expects a faster engine to help, and measures nothing", words)
            for name, meaning, words in (
                (
                    "container-node",
                    "16 KiB random, 70 % reads, 16 in flight, as of a node with containers",
                    "rw=randrw rwmixread=70 bs=16k iodepth=16",
                ),
                (
                    "log-collector",
                    "four streams of 16 KiB appended writes, a flush after every 32",
                    "rw=write bs=16k iodepth=1 numjobs=4 fsync=32",
                ),
                (
                    "ci-agent",
                    "64 KiB random, half reads and half writes, 8 in flight, as of builds",
                    "rw=randrw rwmixread=50 bs=64k iodepth=8",
                ),
                (
                    "light-database",
                    "8 KiB random, 80 % reads, 4 in flight, a flush after every 16 writes",
                    "rw=randrw rwmixread=80 bs=8k iodepth=4 fdatasync=16",
                ),
            )
        ),
        _profile(
            "io-engine",
            "study 1: 4 KiB random reads, 32 in flight, by an application that keeps using libaio",
            "rw=randread bs=4k iodepth=32 numjobs=1 ioengine=libaio direct=1",
        ),
        *(
            _profile(
                f"fio-engines-{engine}",
                _STUDY_2.format(engine),
                f"rw=randwrite bs=4k iodepth=1 numjobs=4 ioengine={engine} direct=0 refill_buffers=0 norandommap=0",
            )
            for engine in ("sync", "psync", "libaio", "mmap", "splice", "io_uring")
        ),
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
