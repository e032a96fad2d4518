# SPDX-License-Identifier: Apache-2.0
"""The settings (knobs) of the I/O path, one row each.

A `Knob` describes its values, what it needs, what changing it costs and what that risks. The command line, plan
files, the audit and the reference page all read the same rows (`virtune.model.knobs`). Whether the installed QEMU has
a value is never guessed from its version: a knob names the query (`Ask`) whose answer decides.
"""

import json
import pkgutil
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal, assert_never

from virtune.model.text import parse_bytes

ROWS: list[dict[str, Any]] = json.loads(pkgutil.get_data("virtune.model", "knobs.json") or b"")
"""Every knob as data; `virtune.model.knobs` makes them of it."""

NO_LIMIT = 2**63 - 1
"""The largest number that QEMU and the kernel take; used where no upper bound is documented."""


class Layer(StrEnum):
    """The level of the I/O path a knob sits on, from the application down to the medium."""

    APPLICATION = "guest application"
    GUEST_KERNEL = "guest kernel"
    DEVICE = "virtual device"
    BLOCK = "QEMU block layer"
    BACKEND = "storage back end"
    PLACEMENT = "placement"
    HOST = "host kernel"
    MEDIUM = "medium"


class Change(StrEnum):
    """What it takes to change a knob on a running system."""

    LIVE = "live"
    SWAP = "node swap"
    REPLUG = "replug"
    POWEROFF = "power-off"
    OFFLINE = "offline"
    GUEST = "guest"
    GUEST_REBOOT = "guest reboot"
    HOST_REBOOT = "host reboot"


class Risk(StrEnum):
    """The worst that changing a knob can do."""

    NONE = "none"
    PERFORMANCE = "performance"
    AVAILABILITY = "availability"
    DATA = "data"
    SECURITY = "security"


_KIND = "The kind of values."
_Low = Annotated[int, "The smallest value."]
_High = Annotated[int, "The largest value; 2^63 - 1 where nobody documents a bound."]
_PowerOfTwo = Annotated[bool, "Whether it must be a power of two."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of a few words."""

    kind: Annotated[Literal["choice"], _KIND] = "choice"
    values: Annotated[tuple[Annotated[str, "A word."], ...], "The words.", {"minItems": 1}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A whole number in a range."""

    kind: Annotated[Literal["number"], _KIND] = "number"
    low: _Low
    high: _High = NO_LIMIT
    unit: Annotated[str, "Its unit; empty for a count."] = ""
    power_of_two: _PowerOfTwo = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A number of bytes in a range, written as fio and QEMU write sizes."""

    kind: Annotated[Literal["size"], _KIND] = "size"
    low: _Low
    high: _High = NO_LIMIT
    power_of_two: _PowerOfTwo = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """On or off."""

    kind: Annotated[Literal["switch"], _KIND] = "switch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Free text of a described shape, for knobs that name things (CPU sets, files, thread ids)."""

    kind: Annotated[Literal["text"], _KIND] = "text"
    shape: Annotated[str, "What it looks like, in words."]


Domain = Choice | Number | Size | Switch | Text

_QUESTION = "Which question."


@dataclass(frozen=True, slots=True, kw_only=True)
class AskSchema:
    """Asks QMP `query-qmp-schema`: the values of `member` of the variant `variant` of `command`'s arguments.

    With an enumeration the answer lists the values; with any other type the answer only says that the member exists.
    """

    kind: Annotated[Literal["AskSchema"], _QUESTION] = "AskSchema"
    command: Annotated[str, "The QMP command whose arguments are looked at."]
    member: Annotated[str, "The argument, perhaps dotted (cache.direct)."]
    variant: Annotated[str | None, "The variant that it belongs to (qcow2); null where it belongs to all."] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskDevice:
    """Asks QMP `device-list-properties` whether the device type has the property."""

    kind: Annotated[Literal["AskDevice"], _QUESTION] = "AskDevice"
    device: Annotated[str, "The type of device."]
    property: Annotated[str, "The property."]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskObject:
    """Asks QMP `qom-list-properties` whether the object type has the property."""

    kind: Annotated[Literal["AskObject"], _QUESTION] = "AskObject"
    object: Annotated[str, "The type of object."]
    property: Annotated[str, "The property."]


Ask = AskSchema | AskDevice | AskObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One setting of the I/O path.

    `place` is the path of the attribute of `Stack` that it sets, empty where virtune only documents the knob and does
    not set it yet. `spelled` is how each system writes it. `default` is what the system does without the setting: a
    value that `read` takes, or an explanation in round brackets. Each line of `source` begins with its evidence,
    `[T]` tried by hand to `[U]` unverified. `in_guest` is what changing it takes in a test VM, where that differs:
    the test disk is not the root disk and can be exchanged.
    """

    id: str
    number: str
    layer: Layer
    domain: Domain
    default: str
    needs: tuple[str, ...] = ()
    ask: Ask | None = None
    change: Change
    in_guest: Change | None = None
    risk: Risk = Risk.NONE
    risk_note: str = ""
    what: str
    why: str
    spelled: Mapping[str, str] = field(default_factory=dict)
    source: tuple[str, ...]
    place: tuple[str, ...] = ()

    def read(self, text: str) -> str | int | bool:
        """Read a value of this knob as a user wrote it.

        Raises ValueError with a sentence on the values allowed.
        """
        return _read(self.domain, text.strip())

    def written(self, value: str | int | bool | None) -> str:  # noqa: FBT001
        """Return a value as `read` takes it; a size with its binary suffix where that is exact."""
        if isinstance(value, bool):
            return "on" if value else "off"
        return _short(value) if isinstance(self.domain, Size) and isinstance(value, int) else str(value)


class Support(StrEnum):
    """Whether an installed program supports a knob."""

    VALUES = "values"
    EXISTS = "exists"
    ABSENT = "absent"
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of one installed program to the query of a knob."""

    program: Annotated[str, "The program that was asked, with its version."]
    standing: Annotated[Support, "How it stands to the knob."]
    values: Annotated[tuple[str, ...], "The words that it accepts, where it lists them."] = ()
    detail: Annotated[str, "The type and default that it names, or why it was not asked."] = ""


def describe_domain(domain: Domain) -> str:
    match domain:
        case Choice(values=values):
            return " | ".join(values)
        case Number(low=low, high=high, unit=unit, power_of_two=power):
            reach = f"{low} or more" if high == NO_LIMIT else f"{low}..{high}"
            return f"{reach}{' ' + unit if unit else ''}{', a power of two' if power else ''}"
        case Size(low=low, high=high, power_of_two=power):
            reach = f"{_short(low)} or more" if high == NO_LIMIT else f"{_short(low)}..{_short(high)}"
            return f"{reach}{', a power of two' if power else ''}"
        case Switch():
            return "on | off"
        case Text(shape=shape):
            return shape
        case _:
            assert_never(domain)


_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def _read(domain: Domain, text: str) -> str | int | bool:
    match domain:
        case Choice(values=values):
            if text not in values:
                raise ValueError(f"{text!r} is not one of {', '.join(values)}")
            return text
        case Number(low=low, high=high, power_of_two=power):
            if not _INTEGER.fullmatch(text):
                raise ValueError(f"{text!r} is not a whole number")
            return _in_range(int(text), low, high, power, text)
        case Size(low=low, high=high, power_of_two=power):
            return _in_range(parse_bytes(text), low, high, power, text)
        case Switch():
            if text not in ("on", "off"):
                raise ValueError(f"{text!r} is neither on nor off")
            return text == "on"
        case Text(shape=shape):
            if not text or not text.isprintable():
                raise ValueError(f"expected {shape}")
            return text
        case _:
            assert_never(domain)


def _in_range(value: int, low: int, high: int, power_of_two: bool, text: str) -> int:  # noqa: FBT001
    if not low <= value <= high:
        raise ValueError(f"{text} is outside {_short(low)}..{_short(high)}")
    if power_of_two and value & (value - 1):
        raise ValueError(f"{text} is not a power of two")
    return value


def _short(number: int) -> str:
    """Write a bound with a binary suffix where that is exact: 65536 -> 64k."""
    for suffix, scale in (("T", 1024**4), ("G", 1024**3), ("M", 1024**2), ("k", 1024)):
        if number >= scale and number % scale == 0:
            return f"{number // scale}{suffix}"
    return str(number)
