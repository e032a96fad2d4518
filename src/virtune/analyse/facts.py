# SPDX-License-Identifier: Apache-2.0
"""Facts of hosts as text by their paths, and what of them differs: between two studies, and over a fleet."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache

from virtune.analyse.stats.student import fisher
from virtune.model.evidence import StudyRecord
from virtune.model.facts import Difference, FactValue, Trait

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
    found, facts = [], gathered(facts)
    for key in dict.fromkeys(key for one in facts.values() for key in one):
        hosts: dict[str, list[str]] = {}
        for host, mine in facts.items():
            hosts.setdefault(mine.get(key, "absent"), []).append(host)
        if len(hosts) > 1 and (len(hosts) < len(facts) or len(facts) == 2):
            ordered = sorted(hosts.items(), key=lambda one: (-len(one[1]), one[0]))
            values = tuple(FactValue(value=value, hosts=tuple(names)) for value, names in ordered)
            found.append(Difference(key=key, values=values))
    return tuple(sorted(found, key=lambda one: (sum(len(value.hosts) for value in one.values[1:]), one.key)))


def gathered(facts: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return the same facts of each host, where all that is told of a thing which another host lacks is one fact: a
    disk that only one of them has is one difference, and not one for each of its twenty facts.
    """
    above = {name: {part for key in one for part in _paths_above(key)} for name, one in facts.items()}
    common = set.intersection(*above.values()) if above else set()
    keys = {key for one in facts.values() for key in one}
    thing = {key: next((part for part in _paths_above(key) if part not in common), key) for key in keys}
    alone = Counter(thing.values())
    one_fact = {key: key if alone[part] == 1 else part for key, part in thing.items()}
    return {
        name: {one_fact[key]: value if one_fact[key] == key else "present" for key, value in one.items()}
        for name, one in facts.items()
    }


@cache
def _paths_above(key: str) -> tuple[str, ...]:
    """Return the paths above a fact, the shortest first; a setting is one whatever dots are in its name."""
    parts = [] if key.startswith("setting.") else key.split(".")
    return tuple(".".join(parts[:end]) for end in range(1, len(parts)))


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


def known_facts(record: StudyRecord, arm: str) -> Mapping[str, str]:
    """Return the facts of a host, and the settings of an arm as they were read back while it ran."""
    checks = (check for one in record.trials if one.trial.arm == arm for check in one.in_force.checks)
    settings = {f"setting.{one.setting}": one.found for one in checks if one.found is not None}
    found = None
    with suppress(ValueError):
        found = json.loads(record.facts or "{}")
    return {**flat(found.get("host") if isinstance(found, dict) else None), **settings}


SHARE_MAX = 0.5
"""A value that half of the others have explains nothing."""


def traits(facts: Mapping[str, Mapping[str, str]], odd: Collection[str]) -> tuple[Trait, ...]:
    """Return the facts that odd hosts have and the others seldom have, the most telling first.

    `facts` are each host's facts by key. A key whose value is another one on nearly every host (a serial number, a
    free size) tells nothing and is left out. The order: Fisher's p, then how much the others agree.
    """
    odd_hosts = [host for host in facts if host in odd]
    others = [host for host in facts if host not in odd]
    found = list[tuple[tuple[float, int, int, str], Trait]]()
    for key in dict.fromkeys(key for host in odd_hosts for key in facts[host]) if others else ():
        theirs = Counter(facts[host].get(key, "absent") for host in others)
        usual, most = theirs.most_common(1)[0]
        if len(others) > 1 and most == 1:  # another value on each host
            continue
        for value, count in Counter(facts[host].get(key, "absent") for host in odd_hosts).items():
            if (with_it := theirs[value]) / len(others) < SHARE_MAX:
                p = fisher(count, len(odd_hosts), with_it, len(others))
                trait = Trait(
                    key=key, value=value, usual=usual, odd_with=count, odd=len(odd_hosts), others_with=with_it,
                    others=len(others), p=p,
                )  # fmt: skip
                found.append(((p, with_it, -most, key), trait))
    return tuple(one for _, one in sorted(found, key=lambda pair: pair[0]))
