# SPDX-License-Identifier: Apache-2.0
"""Published figures of others, to judge a result by, and service levels of applications. None was measured by
virtune.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    """A published comparison in words, with its conditions and source.

    `seen` says whether the source itself was read, or only a text that quotes it.
    """

    number: int
    compares: str
    result: str
    conditions: str
    source: str
    seen: Literal["read", "quoted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorsValue:
    """One value that a study's authors printed, in the metric's base unit; with `of`, the ratio to that arm.

    `workload` is the beginning of the workload's name here, and `arm` the arm here; empty for any.
    """

    metric: str
    value: float
    arm: str = ""
    workload: str = ""
    of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStudy:
    """The published results of a built-in study's authors, their machine, and how the built-in study differs."""

    name: str
    source: str
    machine: str
    differs: tuple[str, ...]
    figures: tuple[AuthorsValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLevel:
    """A named set of conditions for `--fail-if`; `workload` is a suitable one."""

    name: str
    conditions: tuple[str, ...]
    workload: str
    about: str
    source: str
