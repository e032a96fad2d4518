# SPDX-License-Identifier: Apache-2.0
"""The fio command line in a transcript of a terminal: the only place where a text result shows `direct=`.

Only a command whose every option can be read is used: with a job file on it the options are unknown.
"""

import re
import shlex

from virtune.fio.job_options import canonical

_COMMAND = re.compile(r"(?:^|.*[\s$#%>/;&|])fio\s+(?P<words>-.*--?name[= ].*)$")
_FLAGS = frozenset(
    {"time_based", "group_reporting", "norandommap", "thread", "randrepeat", "refill_buffers", "stonewall"}
)
_OUTPUT = ("output", "eta", "status-interval", "client", "server", "minimal", "append-terse", "terse-version")


def words_of(line: str) -> str | None:
    """The part of a line after `fio`, when it is a command that defines jobs."""
    match = _COMMAND.match(line) if "name" in line and "fio" in line else None
    return match["words"] if match else None


def jobs_of(words: str) -> dict[str, dict[str, str]]:
    """The options of every job on a command line, by job name; empty when any part of it cannot be read."""
    try:
        parts = shlex.split(words.replace("\\\n", " "))
    except ValueError:
        return {}
    shared: list[tuple[str, str]] = []
    jobs: dict[str, list[tuple[str, str]]] = {}
    current = shared
    for name, value in _pairs(parts):
        if value is None:
            return {}
        if name == "name":
            current = jobs.setdefault(value, list(shared))
        elif not name.startswith(_OUTPUT):
            current.append((name, value))
    return {name: canonical(options) for name, options in jobs.items()}


def _pairs(parts: list[str]) -> list[tuple[str, str | None]]:
    """Options with their values; a value of None marks a word that is no option (a job file, a pipe, ...)."""
    pairs: list[tuple[str, str | None]] = []
    waiting: str | None = None
    for part in parts:
        if part.startswith("--"):
            name, equals, value = part[2:].partition("=")
            pairs.append((name, value if equals else ""))
            waiting = None if equals or name in _FLAGS else name
        elif waiting is not None:
            pairs[-1] = (waiting, part)
            waiting = None
        else:
            if part in {"|", ">", ">>", "2>&1", "&", ";", "&&"}:
                break
            pairs.append((part, None))
    return pairs
