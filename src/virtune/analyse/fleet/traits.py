# SPDX-License-Identifier: Apache-2.0
"""What odd hosts have that the others have not: facts and settings, the most telling first."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from virtune.analyse.stats.student import fisher
from virtune.model.fleet import Trait

SHARE_MAX = 0.5
"""A value that half of the others have explains nothing."""


def traits(facts: Mapping[str, Mapping[str, str]], odd: Collection[str]) -> tuple[Trait, ...]:
    """Return the facts that odd hosts have and the others seldom have, the most telling first.

    `facts` are each host's facts by key. A key whose value is another one on nearly every host (a serial number, a
    free size) tells nothing and is left out. The order: Fisher's p, then how much the others agree.
    """
    odd_hosts = [host for host in facts if host in odd]
    others = [host for host in facts if host not in odd]
    if not odd_hosts or not others:
        return ()
    keys = dict.fromkeys(key for host in odd_hosts for key in facts[host])
    found = [one for key in keys for one in _of_key(key, facts, odd_hosts, others)]
    return tuple(sorted(found, key=lambda one: (one.p, one.others_with, -_agreeing(one, facts, others), one.key)))


def _of_key(
    key: str, facts: Mapping[str, Mapping[str, str]], odd: Collection[str], others: Collection[str]
) -> Iterator[Trait]:
    theirs = Counter(facts[host].get(key, "absent") for host in others)
    usual, most = theirs.most_common(1)[0]
    if len(others) > 1 and most == 1:  # another value on each host
        return
    for value, count in Counter(facts[host].get(key, "absent") for host in odd).items():
        if theirs[value] / len(others) >= SHARE_MAX:
            continue
        yield Trait(
            key=key,
            value=value,
            usual=usual,
            odd_with=count,
            odd=len(odd),
            others_with=theirs[value],
            others=len(others),
            p=fisher(count, len(odd), theirs[value], len(others)),
        )


def _agreeing(one: Trait, facts: Mapping[str, Mapping[str, str]], others: Collection[str]) -> int:
    return sum(facts[host].get(one.key, "absent") == one.usual for host in others)
