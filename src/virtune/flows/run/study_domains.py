# SPDX-License-Identifier: Apache-2.0
"""Check the libvirt domains of a study, and the requirements of a load in them, before anything is created."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from virtune.model.event import Event, StepEnded, StepStarted
from virtune.model.study import Study

if TYPE_CHECKING:
    from virtune.bench.libvirt.access import DomainAccess


def ready_domains(study: Study, say: Callable[[Event], None]) -> "Mapping[str, DomainAccess]":
    """Check the domains of a study and the requirements of a load in them.

    Returns the access to each by its name. Raises PreconditionError with what is missing and what to do.
    """
    if study.connect is None:
        return {}
    from virtune.bench.libvirt.access import find_way, require_possible

    found: dict[str, DomainAccess] = {}
    for domain in dict.fromkeys(arm.stack.domain for arm in study.arms if arm.stack.domain is not None):
        what = f"looking into {domain}"
        say(StepStarted(what=what))
        way = find_way(study.connect, domain)
        for arm in study.arms:
            if arm.stack.domain == domain:
                require_possible(way, arm.stack)
        found[domain] = way
        say(StepEnded(what=what))
    return found
