# SPDX-License-Identifier: Apache-2.0
"""What a VM would be with settings changed, where virtune writes no text that could be read again: a QEMU's command
line (pure).
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import count, islice
from typing import Any, TypeVar

from virtune.model.domain import Controller, Domain, DomainDisk, DomainThread, SettingChange
from virtune.model.errors import PlanError
from virtune.model.stack import LIMITS
from virtune.plan.like import BUSES

Place = TypeVar("Place", DomainDisk, Controller, DomainThread)

_WORDS: Mapping[str, str] = {
    "disk.cache": "cache", "disk.aio": "io", "disk.discard": "discard", "disk.detect_zeroes": "detect_zeroes",
    "device.werror": "werror", "device.rerror": "rerror",
}  # fmt: skip
_NUMBERS: Mapping[str, str] = {
    "disk.cache_size": "metadata_cache_bytes", "device.num_queues": "queues", "device.queue_size": "queue_size",
    "device.iothread": "iothread", "iothread.poll_max_ns": "poll_max_ns",
}  # fmt: skip
"""What these settings are called of a disk, a controller or an IOThread."""

_LIMITS: Mapping[str, str] = {limit.knob: limit.libvirt for limit in LIMITS}
_BUSES: Mapping[str, str] = {theirs: bus for bus, theirs in BUSES.items()}


def turned(domain: Domain, *turns: SettingChange) -> Domain:
    """Return a VM with settings changed, one after the other. Raises PlanError for a setting of which a Domain says
    nothing, and for a place that the VM has not.
    """
    for turn in turns:
        if turn.knob == "iothread.count":
            wanted, taken = int(turn.value or 0), {one.number for one in domain.threads}
            # the new ones have the lowest numbers that are free
            free = (DomainThread(number=number) for number in count(1) if number not in taken)
            more = islice(free, max(0, wanted - len(domain.threads)))
            domain = replace(domain, threads=(*domain.threads[:wanted], *more))
            continue
        known = {*map(_name, domain.disks), *map(_name, domain.controllers), *map(_name, domain.threads)}
        if turn.at not in known:
            raise PlanError(f"{turn.knob} is of {turn.at or 'the whole VM'}, of which nothing like it is read here")
        domain = replace(
            domain,
            disks=tuple(_changed(one, turn) for one in domain.disks),
            controllers=tuple(_changed(one, turn) for one in domain.controllers),
            threads=tuple(_changed(one, turn) for one in domain.threads),
        )
    return domain


def _name(place: DomainDisk | Controller | DomainThread) -> str:
    match place:
        case DomainDisk():
            return place.target
        case Controller():
            return f"{place.kind}:{place.index}"
        case DomainThread():
            return f"iothread:{place.number}"


def _changed(place: Place, turn: SettingChange) -> Place:
    """Return a place with a setting changed, unchanged if it is of another."""
    if _name(place) != turn.at:
        return place
    known, values = {one.name for one in fields(place)}, dict[str, Any]()
    if turn.knob in _LIMITS:
        values["limits"] = _limits(place, _LIMITS[turn.knob], turn.value)
    elif turn.knob == "device.bus" and turn.value is not None:
        values = {"bus": _BUSES.get(turn.value, turn.value), "controller": 0}
    elif turn.knob in _NUMBERS:
        values[_NUMBERS[turn.knob]] = None if turn.value is None else int(turn.value)
    elif turn.knob in _WORDS:
        values[_WORDS[turn.knob]] = turn.value
    if "iothread" in values:
        values["mapping"] = ()  # which would go over it
    if not values or not values.keys() <= known:
        raise PlanError(f"{turn.knob} of {turn.at} is nothing that is read of it, so it cannot be measured")
    return replace(place, **values)


def _limits(
    place: DomainDisk | Controller | DomainThread, name: str, value: str | None
) -> tuple[tuple[str, int], ...]:
    """Return a disk's limits with another value of one, without it and its bursts for none."""
    limits = place.limits if isinstance(place, DomainDisk) else ()
    others = tuple(one for one in limits if one[0] != name and (value or not one[0].startswith(f"{name}_max")))
    return (*others, (name, int(value))) if value else others
