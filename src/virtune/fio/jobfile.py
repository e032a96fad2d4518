# SPDX-License-Identifier: Apache-2.0
"""A user's own fio job file: parse it, refuse dangerous options, and run it unchanged.

Read as fio 3.33 reads it: sections, a `[global]` that applies to what follows, `;` and `#` that end a line anywhere,
options without a value. Where fio would fail (`rw= read`) or read something else than a person does (`[global2]`,
which it takes for `[global]`), the file is refused with the reason.
"""

import re

from virtune.fio.job_options import milliseconds
from virtune.fio.options import ALIASES, NOTHING, SHAPING, check_together, read_option
from virtune.fio.workloads import JOBS_MAX
from virtune.model.errors import PlanError
from virtune.model.text import format_bytes, quoted
from virtune.model.workload import Job, Workload

CHARACTERS_MAX = 1024**2
"""The largest job file; fio's own examples are below 4 KiB, generated ones below 1 MiB."""

REASONS_MAX = 12
"""The most reasons listed; further ones are counted."""

LINE_MAX = 1000
"""fio reads lines into a buffer of fixed size and would take the rest of a longer one for the next line."""

_SECTION = re.compile(r"\[(?P<name>[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63})\]", re.ASCII)
_NAME = re.compile(r"name[ \t]*=[ \t]*(?P<name>.*?)[ \t]*", re.ASCII)
_OPTION = re.compile(r"(?P<key>[A-Za-z_][A-Za-z0-9_-]*)(?P<rest>[ \t]*=(?P<value>.*))?", re.ASCII | re.DOTALL)


def read_job_file(text: str, name: str) -> Workload:
    """Read a job file into a workload that carries the text unchanged and its jobs with the globals folded in.

    Raises PlanError naming the file and, for every line that cannot be taken, the line and the reason.
    """
    label = _label(name)
    if len(text) > CHARACTERS_MAX:
        raise PlanError(f"{label} is longer than {format_bytes(CHARACTERS_MAX)}, which no job file needs")
    if any("\ud800" <= c <= "\udfff" or c == "\0" for c in text):
        raise PlanError(f"{label} is no text in UTF-8")
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
    match = _NAME.fullmatch(content)
    if match is not None:
        current["name"] = _section(f"[{match['name']}]", where)
        return
    key, _, value = content.partition("=")
    if value.strip() in NOTHING.get(key.strip(), ()):
        return
    name, read = _option(content, where)
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


def _label(name: str) -> str:
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


def _option(content: str, where: str) -> tuple[str, str]:
    match = _OPTION.fullmatch(content)
    if match is None:
        raise PlanError(f"{where}: {quoted(content)} is not option=value")
    key, value = match["key"], match["value"]
    canonical = ALIASES.get(key, key)
    option = SHAPING.get(canonical)
    if value is not None and value != value.lstrip() and option is not None and option.word:
        raise PlanError(
            f"{where}: fio takes the blank after {key}= for part of the value", hint=f"write {key}={value.strip()}"
        )
    return read_option(key, None if value is None else value.strip(), where=where, in_file=True)


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
