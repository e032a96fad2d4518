# SPDX-License-Identifier: Apache-2.0
"""Derive the figures of stored studies again from their raw captures, by today's method, on all CPUs or by a Dask
cluster.
"""

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from functools import partial
from itertools import chain

from virtune.flows.stored.show import derived_anew
from virtune.model.errors import DatabaseUrl, PreconditionError, StoreError, StorePlace, UsageError
from virtune.model.evidence import DerivedStudy
from virtune.model.measurement import METHOD
from virtune.store.queries import SEPARATOR, own_id
from virtune.store.store import Store
from virtune.workers import dask_cluster, divided, require_tls

ATTEMPTS_EACH = 1000
"""Attempts for which another process is worth its start. To derive one takes some 5 ms of CPU, to start Python with
what that needs a second: two processes end before one does from some 400 attempts on where two CPUs are idle, and
on busy ones some 500 took twice as long (benchmarks/fleet.md)."""

STUDIES_MAX = 20
"""Studies that a process takes at once: few enough that all end at about the same time."""


def derive_studies(
    place: StorePlace, names: Sequence[str], *, processes: int = 1, each: int = ATTEMPTS_EACH, cluster: str = ""
) -> Iterator[DerivedStudy]:
    """Derive studies anew and yield what was done of each; no names mean all. Older figures are kept beside the new.

    Each attempt is stored by itself, so that what is interrupted has lost nothing and goes on where it was. Several
    machines may do this to one database at once: each begins at a study of its own, and none derives what another one
    derives or has derived meanwhile. No more processes are started than there are `each` attempts to derive for.
    The workers of a Dask `cluster` do it instead where one is named. Raises UsageError for a name that means no
    study, and for a store that workers elsewhere do not see.
    """
    if cluster:
        require_tls(cluster)
    if cluster and not isinstance(place, DatabaseUrl):
        what = f"the store {place} is a file of this machine, which the workers of a cluster do not see"
        raise UsageError(what, hint="--store postgresql://USER@HOST/DATABASE, or leave --cluster out")
    with Store(place) as store:
        counted = {one.name: one for one in store.methods()}
        wanted = list[str]()
        for name in names:
            study = store.find(name)  # and of which host it is
            wanted.append(f"{store.host}{SEPARATOR}{study}" if store.host else study)
    if not wanted:
        wanted = [*counted]
        # each machine begins elsewhere in a database that others may derive, too
        first = (
            zlib.crc32(os.uname().nodename.encode()) % len(wanted) if isinstance(place, DatabaseUrl) and wanted else 0
        )
        wanted = [*wanted[first:], *wanted[:first]]
    left = [name for name in wanted if counted[name].older]
    with dask_cluster(cluster) if cluster else nullcontext((None, processes)) as (executor, most):
        at_once = min(most, 1 + sum(counted[name].older for name in left) // each)
        size = max(1, min(STUDIES_MAX, len(left) // (4 * at_once)))
        parts = [left[begin : begin + size] for begin in range(0, len(left), size)]
        work = partial(_derived_of, place, METHOD)
        with closing(divided(work, parts, processes=at_once, executor=executor)) as done:
            found = chain.from_iterable(done)
            for name in wanted:
                yield next(found) if counted[name].older else DerivedStudy(name=name, current=counted[name].current)


def _derived_of(place: StorePlace, method: int, names: Sequence[str]) -> list[DerivedStudy]:
    """Derive some studies, in whichever process this is: first those that no other machine derives now.

    Raises PreconditionError where the virtune of this process has another method.
    """
    if method != METHOD:
        what = f"a worker has another virtune: it derives by method {METHOD}, and this one by {method}"
        raise PreconditionError(what, hint="install the same version where the workers run")
    found: dict[str, DerivedStudy] = {}
    with Store(place) as store:
        for wait in (False, True):
            for name in (one for one in names if one not in found):
                store.host, study = own_id(name)
                with store.claimed(study, wait=wait) as mine:
                    if mine:
                        found[name] = _derived(store, name, study)
    return [found[name] for name in names]


def _derived(store: Store, name: str, study: str) -> DerivedStudy:
    (now,) = store.methods(study)
    if not now.older:  # another machine was here meanwhile
        return DerivedStudy(name=name, current=now.current)
    try:
        before = store.get(study)
        after = derived_anew(store, before)
    except StoreError as error:
        return DerivedStudy(name=name, because=error.message)
    old = [one.measurement.method for one in before.attempts if one.measurement is not None]
    new = [one.measurement.method for one in after.attempts if one.measurement is not None]
    current = sum(one == METHOD for one in old)
    derived = sum(one == METHOD for one in new) - current
    return DerivedStudy(name=name, derived=derived, current=current, unreadable=len(new) - derived - current)
