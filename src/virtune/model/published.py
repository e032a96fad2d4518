# SPDX-License-Identifier: Apache-2.0
"""What others published: figures to judge a result by, limits that an application needs. Never a result of ours."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    """A comparison that somebody published, in words, with its conditions and source.

    `seen` says whether the source itself was read, or another text that quotes it.
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
    """What the authors of a built-in study printed, on which machine, and what differs from what is done here."""

    name: str
    source: str
    machine: str
    differs: tuple[str, ...]
    figures: tuple[AuthorsValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLevel:
    """Conditions under a name, for `--fail-if`; `workload` is one that shows them."""

    name: str
    conditions: tuple[str, ...]
    workload: str
    about: str
    source: str
