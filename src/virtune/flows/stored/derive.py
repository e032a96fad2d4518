# SPDX-License-Identifier: Apache-2.0
"""Derive the figures of stored studies again from their raw captures, by today's method."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from virtune.flows.stored.show import derived_anew
from virtune.model.errors import StoreError
from virtune.model.evidence import Damaged
from virtune.model.measurement import METHOD
from virtune.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedStudy:
    """What was derived of one study: attempts that got new figures, that had them, and that cannot be read today.

    `because` is why the study was left out; empty where it was not.
    """

    name: str
    derived: int = 0
    current: int = 0
    unreadable: int = 0
    because: str = ""


def derive_studies(store: Store, names: Sequence[str]) -> Iterator[DerivedStudy]:
    """Derive studies anew and yield what was done of each; no names mean all. Older figures are kept beside the new.

    Each attempt is stored by itself, so that what is interrupted has lost nothing and goes on where it was.
    """
    for name in names or [one.id if isinstance(one, Damaged) else one.name for one in store.list()]:
        try:
            found = store.find(name)
            yield _derived(store, found)
        except StoreError as error:
            yield DerivedStudy(name=name, because=error.message)


def _derived(store: Store, study: str) -> DerivedStudy:
    before = store.get(study)
    after = derived_anew(store, before)
    old = [one.measurement.method for one in before.attempts if one.measurement is not None]
    new = [one.measurement.method for one in after.attempts if one.measurement is not None]
    name = f"{store.host}/{study}" if store.host else study
    current = sum(one == METHOD for one in old)
    derived = sum(one == METHOD for one in new) - current
    return DerivedStudy(name=name, derived=derived, current=current, unreadable=len(new) - derived - current)
