# SPDX-License-Identifier: Apache-2.0
"""The row type of the table of study options, and where a chosen value came from. The table is
`model/study_options.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from virtune.model.units import format_bytes

T = TypeVar("T")


class Takes(StrEnum):
    """What kind of value an option takes; times are in seconds, sizes in bytes, shares from 0 to 1."""

    TEXT = "text"
    TIME = "time"
    SIZE = "size"
    WHOLE = "whole number"
    SHARE = "share"
    SWITCH = "switch"
    CHOICE = "choice"
    RIG = "rig"
    METRIC = "metric"
    WORKLOADS = "workloads"
    LOADS = "loads"
    SETTINGS = "settings"
    ARMS = "arms"
    PLACE = "path"


UNITS: Mapping[Takes, str] = {Takes.TIME: "s", Takes.SIZE: "bytes", Takes.SHARE: "share (0 to 1)"}
"""The unit of a value, where it has one."""


class Provenance(StrEnum):
    """Where the value of an option came from."""

    FLAG = "command line"
    PLAN = "plan file"
    BUILTIN = "built-in study"
    JOB_FILE = "job file"
    ENVIRONMENT = "environment"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenOption:
    """The value of one option in a study, as text, and its origin."""

    name: str
    value: str
    source: Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionRow:
    """One option of the verbs that measure: the command line, plan files, their schema and the docs read this row.

    A value that is a mapping holds one entry for each verb; "" stands for the others. `default` is the default value
    (None: it depends on other options, as `otherwise` says), `why` is the reason for it. `low` and `high` are the
    bounds; `below`: the upper one itself is out. `plan` is the key in plan files, or else `not_in_plan` says why they
    have none. `once` are the verbs that take one value where others take several.
    """

    takes: Takes
    help: str | Mapping[str, str]
    verbs: tuple[str, ...]
    flag: str = ""
    metavar: str | Mapping[str, str] | None = None
    choices: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ()
    low: float | None = None
    high: float | None = None
    below: bool = False
    many: bool = False
    once: tuple[str, ...] = ()
    default: Any = None
    otherwise: str | Mapping[str, str] = ""
    why: str = ""
    plan: str = ""
    plan_help: str = ""
    not_in_plan: str = ""

    def default_for(self, verb: str) -> Any:
        """Return the default value; None where it depends on other options."""
        return for_verb(self.default, verb)


def for_verb(value: T | Mapping[str, T], verb: str) -> T | None:
    """Return a row's value for a verb; None where the row has none for it."""
    if isinstance(value, Mapping):
        return value.get(verb, value.get(""))
    return value


def value_text(takes: Takes, value: Any) -> str:
    """Write the value of an option as people write it: `500ms`, `1 GiB`, `disk.aio=native, disk.cache=none`."""
    if isinstance(value, tuple):
        return ", ".join(one if isinstance(one, str) else f"{one[0]}:{','.join(one[1])}" for one in value)
    match takes:
        case Takes.TIME:
            if value >= 3600:
                return f"{value / 3600:g}h"
            return f"{value:g}s" if value >= 1 or value == 0 else f"{value * 1000:g}ms"
        case Takes.SIZE:
            return format_bytes(value)
        case Takes.SWITCH:
            return "yes" if value else "no"
        case Takes.SHARE:
            return f"{value:g}"
        case _:
            return str(value)
