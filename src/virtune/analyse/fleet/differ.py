# SPDX-License-Identifier: Apache-2.0
"""What differs between hosts: facts as flat keys, and those whose values are not the same everywhere."""

from collections.abc import Iterator, Mapping

from virtune.model.fleet import Difference

CHANGING = (
    "busy.", "kernel.aio_used", "kvm.boot", "memory.available_bytes", "memory.dirty_bytes", "memory.swap_used_bytes",
    "scratch.free_bytes",
)  # fmt: skip
"""Facts that change from minute to minute: that they differ between hosts says nothing."""

_NAMES = ("name", "node", "resource", "device")
"""The key by which an entry of a list is named, in this order."""

DEPTH_MAX = 20


def flat(facts: object) -> dict[str, str]:
    """Return facts as text by their paths: `kernel.release`, `disks.vda.device.scheduler`; unknown ones are left out.

    An entry of a list has the path of its name, so that two hosts with their disks in another order are alike.
    """
    return {key: text for key, text in _flat(facts, "", 0) if not key.startswith(CHANGING)}


def differences(facts: Mapping[str, Mapping[str, str]]) -> tuple[Difference, ...]:
    """Return the facts that differ between hosts, those first in which the fewest hosts stand apart.

    `facts` are each host's facts by key. A fact that is another one on every host (of more than two) names hosts and
    is left out.
    """
    found = []
    for key in dict.fromkeys(key for one in facts.values() for key in one):
        hosts: dict[str, list[str]] = {}
        for host, mine in facts.items():
            hosts.setdefault(mine.get(key, "absent"), []).append(host)
        if len(hosts) > 1 and (len(hosts) < len(facts) or len(facts) == 2):
            ordered = sorted(hosts.items(), key=lambda one: (-len(one[1]), one[0]))
            found.append(Difference(key=key, values=tuple((value, tuple(names)) for value, names in ordered)))
    return tuple(sorted(found, key=lambda one: (sum(len(names) for _, names in one.values[1:]), one.key)))


def _flat(value: object, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if value is None or depth > DEPTH_MAX:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}".lstrip("."), depth + 1)
    elif isinstance(value, list) and any(isinstance(one, dict | list) for one in value):
        for index, one in enumerate(value):
            yield from _flat(one, f"{path}.{_name_of(one, depth) or index}", depth + 1)
    elif isinstance(value, list):
        yield path, ",".join(map(_text, value))
    else:
        yield path, _text(value)


def _name_of(one: object, depth: int) -> str | None:
    for key in _NAMES if isinstance(one, dict) and depth <= DEPTH_MAX else ():
        found = one.get(key) if isinstance(one, dict) else None
        if isinstance(found, dict):
            return _name_of(found, depth + 1)
        if isinstance(found, str | int):
            return str(found)
    return None


def _text(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
