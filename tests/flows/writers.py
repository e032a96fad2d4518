# SPDX-License-Identifier: Apache-2.0
"""The recorded configurations of every language, the values of every knob, and where a knob may be set."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.knob_values import EXAMPLES

from virtune.dialects.languages import language_of
from virtune.model.domain import Domain
from virtune.model.errors import ReadError
from virtune.model.knob import Choice, Knob, Switch

CAPTURES = Path(__file__).parents[1] / "captures"


TYPED = ("1", "2", "4", "64", "512", "4096", "65536", "1048576", "0-1", "1+2", "fifo:1", "fifo 1", "batch", "a", "b")
"""Numbers, sizes, CPUs, IOThreads, schedulers and names."""


@cache
def samples(name: str) -> tuple[tuple[bytes, tuple[Domain, ...]], ...]:
    """The recorded configurations in a language."""
    found = []
    for path in sorted(one for one in CAPTURES.rglob("*") if one.is_file()):
        text = path.read_bytes()
        try:
            if len(text) < 200_000 and language_of(text).name == name:
                found.append((text, language_of(text).domains(text)))
        except ReadError:
            continue
    return tuple(sorted(found, key=lambda one: len(one[0])))


def values_of(knob: Knob) -> tuple[str | None, ...]:
    """Values of a knob as somebody types them, and its default."""
    typed = [EXAMPLES[knob.id][0]] if knob.id in EXAMPLES else []
    match knob.domain:
        case Choice(values=values):
            typed += values
        case Switch():
            typed += ["on", "off"]
        case _:
            typed += TYPED
    return (*(one for one in typed if readable(knob, one)), None)


def readable(knob: Knob, text: str) -> bool:
    try:
        knob.read(text)
    except ValueError:
        return False
    return True


def places(domain: Domain) -> Iterator[str]:
    """Where a knob may be set: the domain, two of its disks, and one of each other kind."""
    yield ""
    yield from (disk.target for disk in domain.disks[:2])
    yield from (f"scsi:{one.index}" for one in domain.controllers[:1])
    yield from (f"iothread:{one.number}" for one in domain.threads[:1])
    yield "vcpu:0"
