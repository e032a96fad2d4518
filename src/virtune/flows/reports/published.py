# SPDX-License-Identifier: Apache-2.0
"""Published figures of others, read from the files that ship with virtune (`virtune/published`)."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from virtune.model.errors import UsageError
from virtune.model.published import PublishedFigure, PublishedStudy, ServiceLevel
from virtune.model.text import did_you_mean, quoted

_PLACE = Path(__file__).parents[2] / "published"

_Row = TypeVar("_Row")


@cache
def figures() -> tuple[PublishedFigure, ...]:
    """Return every published comparison."""
    return _rows("figures.toml", "figure", PublishedFigure)


def published_study(name: str) -> PublishedStudy | None:
    """Return the published results of a built-in study's authors; None for any other name."""
    found = _rows("studies.toml", "study", PublishedStudy)
    return next((one for one in found if one.name == name), None)


@cache
def service_levels() -> tuple[ServiceLevel, ...]:
    """Return every published service level."""
    return _rows("service_levels.toml", "level", ServiceLevel)


def conditions_of(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the conditions, with the names of service levels replaced by their conditions.

    Raises UsageError for a single word that is no service level.
    """
    levels = {one.name: one.conditions for one in service_levels()}
    found: list[str] = []
    for word in words:
        name = word.strip().lower()
        if name in levels:
            found += [one for one in levels[name] if one not in found]
        elif name and all(part.isalnum() for part in name.split("-")) and not any(sign in word for sign in "<>=%"):
            hint = (
                did_you_mean(name, levels)
                or f"a condition such as `latency.p99 > 2ms`, or one of {', '.join(levels)}"
            )
            raise UsageError(f"not a condition: {quoted(word)}", hint=hint)
        else:
            found.append(word)
    return tuple(found)


def _rows(file: str, key: str, kind: type[_Row]) -> tuple[_Row, ...]:
    content: dict[str, Any] = tomllib.loads((_PLACE / file).read_text(encoding="utf-8"))
    return TypeAdapter(tuple[kind, ...]).validate_python(content[key])  # type: ignore[valid-type]
