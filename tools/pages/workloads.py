# SPDX-License-Identifier: Apache-2.0
"""The page of workloads: profiles, groups, what may be written on one line, what is refused and why."""

import inspect
from collections.abc import Iterator, Mapping

from tools.pages.markdown import code, plain, table, whole
from virtune.fio import workloads
from virtune.fio.job import PERCENTILES
from virtune.fio.options import ALIASES, ENGINE_OPTIONS, ENGINES, IN_FILES, REFUSED, SHAPING, FioOption
from virtune.fio.workloads import GROUPS, JOBS_MAX, LONGEST, PROFILES

_OUTSIDE = "is outside "
_TOO_LARGE = "9" * 18
"""A whole number, and outside of every range: what is answered to it names the range."""


def page() -> str:
    """Return the page."""
    return whole("Workloads", (*_profiles(), *_inline(), *_added(), *_allowed(), *_files(), *_refused()))


def _profiles() -> Iterator[str]:
    yield "What may stand behind `--workload`, and behind `workload` in a [plan](plan.md). Sizes are fio's: 4k"
    yield "is 4096 bytes.\n"
    yield "## Profiles\n"
    yield from table(
        ("name", "meaning", "fio's words"),
        (
            (code(profile.name), plain(profile.meaning), code(_words(profile.options)))
            for profile in PROFILES.values()
        ),
    )
    yield "A group stands for several workloads, which are measured one after the other in every round:\n"
    yield from table(
        ("group", "its profiles"), ((code(name), ", ".join(map(code, members))) for name, members in GROUPS.items())
    )


def _inline() -> Iterator[str]:
    block = inspect.cleandoc(workloads.__doc__ or "").split("\n\n")[2]
    yield "## On one line\n"
    yield "```text"
    yield inspect.cleandoc(block)
    yield "```\n"
    yield f"At most {LONGEST} characters and {JOBS_MAX} jobs. A job needs `rw=`; a profile has it. A word that"
    yield "contains a slash, or ends in `.fio`, `.job` or `.ini`, names a fio job file instead.\n"


def _added() -> Iterator[str]:
    yield "## What virtune adds\n"
    yield "- the target, and how much of it: `--target`, `--scratch`, `--span`"
    yield "- the times: `--seconds`, `--ramp`; `time_based=1`, but with `number_ios` the job ends by itself"
    yield "- an engine, where none is named: the first of io_uring, libaio and psync that this fio has; for an"
    yield "  NBD export always `nbd`"
    yield "- `direct=1`, where `direct` is not said, so that the disk is measured and not the page cache of"
    yield "  whoever runs fio (not with `ioengine=mmap`, which cannot, nor over NBD, where fio opens no file)"
    yield "- `randrepeat=0` and a `randseed` that is the same for all arms of a round; `norandommap=1` for"
    yield "  random I/O; `refill_buffers=1` for writes: each unless the workload says something of it"
    yield f"- every percentile: `percentile_list={PERCENTILES}`\n"
    yield "`virtune show last --trial 1` shows the job as it ran, and what was decided for it.\n"


def _allowed() -> Iterator[str]:
    yield "## Options\n"
    yield "Engines: " + ", ".join(map(code, ENGINES)) + ".\n"
    yield from _options(SHAPING)
    others = [f"{code(other)} for {code(name)}" for other, name in ALIASES.items() if name in SHAPING]
    yield f"Other spellings that are taken: {', '.join(others)}.\n"
    yield "Refused together: `direct=1` with `ioengine=mmap`; `iodepth_batch` larger than `iodepth`; blocks"
    yield "that are not multiples of 512 bytes, unless `direct=0` or `bs_unaligned`; `zero_buffers` with"
    yield "`refill_buffers`; an engine's own option with another engine.\n"


def _files() -> Iterator[str]:
    yield "## Job files\n"
    yield "A user's own fio job file: parse it, refuse dangerous options, and run it unchanged.\n"
    text = inspect.cleandoc(workloads.__doc__ or "")
    yield plain(next(part for part in text.split("\n\n") if part.startswith("Read as fio"))) + "\n"
    yield "A job file may also say:\n"
    yield from _options(IN_FILES)


def _refused() -> Iterator[str]:
    yield "## Refused\n"
    yield "An option that stands in no table here is refused as well: fio gains options with every release,"
    yield "some run programs, choose files or unlink them.\n"
    by_reason: dict[str, list[str]] = {}
    for name, reason in REFUSED.items():
        by_reason.setdefault(reason, []).append(name)
    yield from table(
        ("why", "options"), ((plain(reason), ", ".join(map(code, names))) for reason, names in by_reason.items())
    )


def _options(options: Mapping[str, FioOption]) -> Iterator[str]:
    yield from table(
        ("option", "values", "only with"),
        (
            (
                code(name),
                _values(name, option),
                ", ".join(map(code, ENGINE_OPTIONS.get(name, ()))),
            )
            for name, option in options.items()
        ),
    )


def _values(name: str, option: FioOption) -> str:
    """Say what may be written, in the words in which virtune refuses what may not."""
    if name == "ioengine":
        return "one of the engines"
    said = [_answer(option, wrong) for wrong in ("?", _TOO_LARGE, "\0")]
    kind = next(answer for answer in said if answer)
    bounds = next((answer for answer in said if answer.startswith(_OUTSIDE)), "").removeprefix(_OUTSIDE)
    for beginning in ("is not ", "one of "):
        kind = kind.removeprefix(beginning)
    kind = {"is neither 0 nor 1": "0, 1", "must stay 1: virtune needs it": "1"}.get(kind, kind)
    kind = kind.replace("not a size: '?' (write ", "a size (")
    words = [kind, bounds] if bounds else [kind]
    return plain(", ".join(words) + ("; alone it means 1" if option.flag else ""))


def _answer(option: FioOption, wrong: str) -> str:
    try:
        option.check(wrong)
    except ValueError as error:
        return str(error)
    return ""


def _words(options: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in options.items())
