# SPDX-License-Identifier: Apache-2.0
"""Gather the studies of many hosts: each once, however often it is gathered."""

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import BoundedSemaphore, Lock
from typing import Any

from virtune.fleet.ssh import HostError
from virtune.flows.fleet.ask import DOCUMENT_MAX, Asked, FleetAccess, Ready, ask_each, is_word, read_document
from virtune.flows.fleet.place import FleetPlace
from virtune.flows.fleet.summaries import KINDS, summarised
from virtune.flows.stored.import_bundle import Merged, merge, read_bundle
from virtune.model.errors import StorePlace, VirtuneError
from virtune.model.fleet import FleetHost, Unreached
from virtune.report.json.listing import LIST
from virtune.store.queries import SEPARATOR
from virtune.store.store import Store

BUNDLE_MAX = 256 * 1024**2
"""The largest bundle of one study that is pulled; a day of trials of 10 s has some 110 MiB, a long search 20."""

AT_ONCE = 4
_ON_THE_WAY, _UNPACKED = BoundedSemaphore(AT_ONCE), Lock()
"""So many bundles are on their way at once, in temporary files of 1 GiB at most, and one of them is unpacked, however
many hosts are asked: none of them may cost more than its own failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What was gathered from one host: its store here, and what was added to it."""

    host: FleetHost
    store: StorePlace
    studies: tuple[Merged, ...]


def gather(
    hosts: Sequence[FleetHost],
    access: FleetAccess,
    place: FleetPlace,
    *,
    studies: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> list[Gathered | Unreached]:
    """Pull the studies of every host into a place; of some names (beginnings of ids) only those.

    A study that is here whole is not pulled again, and of one that has gone on the new attempts are added: what is
    kept is told apart by host, study, trial and attempt.
    """
    place.prepare()

    def task(ready: Ready) -> tuple[Merged, ...]:
        with place.of(ready.connection.host.name) as store:
            return tuple(_pulled(ready, access, store, name) for name in _wanted(ready, access, store, studies))

    # a host by two names would be two stores of the same studies, so hosts are told apart before any is pulled
    met = {_name_of(one): one for one in ask_each(hosts, access, lambda _: None)}
    good = [host for host in hosts if not isinstance(met[host.name], Unreached)]
    pulled = {_name_of(one): one for one in ask_each(good, access, task, say=say)} if good else {}
    return [_gathered(place, pulled.get(host.name), met[host.name]) for host in hosts]


def pull(ready: Ready, access: FleetAccess, store: Store, study: str) -> None:
    """Pull one study of a host into a store where it is not there whole. Raises HostError and StoreError."""
    if not store.is_finished(study):
        _pulled(ready, access, store, study)


def _name_of(one: Asked[Any]) -> str:
    return one.host.name if isinstance(one, Unreached) else one[0].name


def _gathered(place: FleetPlace, pulled: Asked[tuple[Merged, ...]] | None, met: Asked[None]) -> Gathered | Unreached:
    if isinstance(pulled, Unreached):
        return pulled
    if pulled is None:
        assert isinstance(met, Unreached)  # noqa: S101 - only such a host was not asked again
        return met
    host, _, studies = pulled
    return Gathered(host=host, store=place.place_of(host.name), studies=studies)


def _wanted(ready: Ready, access: FleetAccess, store: Store, names: Sequence[str]) -> list[str]:
    """Return the studies of a host that are to be pulled, the oldest first."""
    done = ready.connection.run(
        [ready.virtune, "list", "--json"], timeout_seconds=access.timeout_seconds, most_bytes=DOCUMENT_MAX
    )
    found = read_document(done.stdout, LIST).get("studies")
    if not isinstance(found, list):
        raise HostError("its list of studies is damaged")
    ids = [listed_id(one) for one in reversed(found)]
    for name in names:
        if not any(one.startswith(name) for one in ids):
            raise HostError(f"has no study {name!r}", hint="`virtune list` there shows its studies")
    # what it has gathered itself is of other hosts
    chosen = [one for one in ids if SEPARATOR not in one and (not names or one.startswith(tuple(names)))]
    return [one for one in chosen if not store.is_finished(one)]


def listed_id(listed: Mapping[str, Any]) -> str:
    """Return the id of a study in a host's list. Raises HostError where it is none."""
    found = listed.get("id") if isinstance(listed, dict) else None
    if not is_word(found):
        raise HostError("its list of studies is damaged")
    return str(found)


def _pulled(ready: Ready, access: FleetAccess, store: Store, name: str) -> Merged:
    with _ON_THE_WAY, tempfile.TemporaryFile() as file:
        command = [ready.virtune, "fleet", "here", name, "--rows"]
        try:
            ready.connection.run(command, timeout_seconds=access.timeout_seconds, most_bytes=BUNDLE_MAX, into=file)
        except OSError as error:
            said = f"cannot keep its study {name} in {tempfile.gettempdir()}: {(error.strerror or '').lower()}"
            raise HostError(said, hint="the environment's TMPDIR names another directory") from None
        with _UNPACKED, read_bundle(file, source=f"its study {name}") as bundled:
            if bundled.study.id != name:
                raise HostError(f"gave another study than {name}")
            merged = merge(bundled, store)
    if bundled.finished and bundled.study.kind in KINDS:
        with contextlib.suppress(VirtuneError):  # it is here; what it says the report will tell
            summarised(store, name)
    return merged
