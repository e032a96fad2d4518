# SPDX-License-Identifier: Apache-2.0
"""The share of bare metal's IOPS that a structure of VMs reached on this host, from stored studies."""

import contextlib

from virtune.analyse.study.summarise import metal_of, shares_of_metal, structure_of
from virtune.flows.stored.earlier_studies import cpu_of
from virtune.flows.stored.show import by_todays_method
from virtune.model.bottleneck import OwnShare
from virtune.model.errors import StoreError, StorePlace
from virtune.model.evidence import Listed
from virtune.model.facts import Unknown
from virtune.probe.cpu import cpu_facts
from virtune.store.store import Store

NEWEST = 1000
"""Among how many of the newest studies one of the structure is looked for."""


def own_shares(place: StorePlace, structure: str) -> tuple[OwnShare, ...]:
    """Return the shares of a structure under each workload, from the newest study of this host that has it; empty
    without such a study, and without a store that can be read.
    """
    found: dict[str, OwnShare] = {}
    cpu = cpu_facts().model
    if place.exists():
        with contextlib.suppress(StoreError), Store(place, reading=True) as store:
            newest = store.page(words="", kind="", limit=NEWEST, offset=0, own=True).rows
            for study in (one.study for one in newest if isinstance(one, Listed)):
                wanted = not study.simulated and any(structure_of(arm.stack) == structure for arm in study.arms)
                if not wanted or metal_of(study) is None:
                    continue
                record = by_todays_method(store, study.id)
                for one in shares_of_metal(record) if not isinstance(cpu, Unknown) and cpu_of(record) == cpu else ():
                    if one.structure == structure:
                        found.setdefault(one.workload, one)
    return tuple(found.values())
