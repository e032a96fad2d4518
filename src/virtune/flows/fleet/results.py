# SPDX-License-Identifier: Apache-2.0
"""What many hosts measured: their studies fetched into this store, labelled with their host, and said together."""

import contextlib
import json
import tempfile
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any

from pydantic import TypeAdapter

from virtune import __version__
from virtune.analyse.fleet import SUMMARY, answer, drift_between, level_of, summary_of
from virtune.analyse.history import histories
from virtune.analyse.stats.changes import SIDE_MIN
from virtune.fleet.ssh import HostError
from virtune.flows.fleet.ask import FleetAccess, Ready, ask_each, is_word
from virtune.flows.stored.import_bundle import merge, read_bundle
from virtune.flows.stored.show import by_todays_method, derived_anew
from virtune.model import fleet
from virtune.model.errors import (
    PlanError,
    PreconditionError,
    StoreError,
    StorePlace,
    UsageError,
    VirtuneError,
    words_of,
)
from virtune.model.evidence import FinishedStudy
from virtune.model.measurement import METHOD
from virtune.model.metric import BY_ID
from virtune.model.study import Study, StudyKind
from virtune.plan.codec import study_from_json
from virtune.report.json.listing import LIST
from virtune.store.queries import SEPARATOR
from virtune.store.store import Store

SUFFIX = ".sqlite"


@dataclass(frozen=True, slots=True)
class FleetFolder:
    """A folder with a store for each host, DIR/HOST.sqlite."""

    path: Path

    def prepare(self) -> None:
        """Make the folder. Raises PreconditionError where that fails."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PreconditionError(f"cannot make {self.path}: {words_of(error)}") from None

    def hosts(self) -> Sequence[str]:
        return [path.stem for path in sorted(self.path.glob(f"*{SUFFIX}"))]

    def finished(self, kinds: Sequence[str]) -> Iterator[FinishedStudy]:
        """Yield every finished study of these kinds, each host's newest first."""
        for host in self.hosts():
            with self.of(host, reading=True) as store:
                yield from (replace(one, host=host) for one in store.finished(kinds, own=True))

    def stores(self, hosts: Sequence[str]) -> Iterator[tuple[Store, Mapping[str, str]]]:
        """Yield each host's store, open for reading, with that host, whose studies it has under no name."""
        for host in hosts:
            with self.of(host, reading=True) as store:
                yield store, {host: ""}

    def of(self, host: str, *, reading: bool = False) -> Store:
        return Store(self.place_of(host), reading=reading)

    def place_of(self, host: str) -> StorePlace:
        return self.path / f"{host}{SUFFIX}"

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class FleetStore:
    """One store for all hosts: each study under (host, id), since two hosts may have studies of one id."""

    place: StorePlace

    def prepare(self) -> None:
        """Make the store once, before many write to it."""
        with Store(self.place):
            pass

    def hosts(self) -> Sequence[str]:
        if not self.place.exists():
            return ()
        with Store(self.place, reading=True) as store:
            return store.hosts()

    def finished(self, kinds: Sequence[str]) -> Iterator[FinishedStudy]:
        """Yield every finished study of these kinds that a host has, the newest first."""
        if self.place.exists():
            with Store(self.place, reading=True) as store:
                yield from (one for one in store.finished(kinds) if one.host)

    def stores(self, hosts: Sequence[str]) -> Iterator[tuple[Store, Mapping[str, str]]]:
        """Yield the store, open for reading, with all hosts, each of whose studies it has under its name."""
        with Store(self.place, reading=True) as store:
            yield store, {host: host for host in hosts}

    def of(self, host: str, *, reading: bool = False) -> Store:
        """Return the store, in which ids mean a host's studies."""
        return Store(self.place, reading=reading, host=host)

    def place_of(self, host: str) -> StorePlace:  # noqa: ARG002 - all are in one
        return self.place

    def __str__(self) -> str:
        return str(self.place)


FleetPlace = FleetFolder | FleetStore


KINDS = (StudyKind.COMPARE, StudyKind.MEASURE)
"""The kinds of studies whose figures of many hosts can be put together."""

MADE_BY = f"{METHOD}.{SUMMARY} {__version__}"
"""What a kept summary must have been made by, to be shown."""


def summaries(place: FleetPlace, chosen: Mapping[str, str]) -> dict[str, fleet.HostSummary]:
    """Return the summaries of studies, by hosts with the id of a study each, in the order of their names."""
    every = _summaries(place, {host: [study] for host, study in chosen.items()})
    return {host: one for host, (one,) in every.items()}


def _summaries(place: FleetPlace, chosen: Mapping[str, Sequence[str]]) -> dict[str, list[fleet.HostSummary]]:
    """Return the same of several studies of each host."""
    found: dict[str, list[fleet.HostSummary]] = {}
    for store, hosts in place.stores(sorted(chosen)):
        keys = {host: [(owner, study) for study in chosen[host]] for host, owner in hosts.items()}
        kept = store.summaries([*chain.from_iterable(keys.values())], method=MADE_BY)
        for host, store.host in hosts.items():
            found[host] = [_read(kept.get(key, "")) or summarised(store, key[1]) for key in keys[host]]
    return found


def summarised(store: Store, study: str) -> fleet.HostSummary:
    """Make the summary of a finished study of the store's host by today's method, and keep it where that is possible.

    Raises StoreError for a study that is damaged.
    """
    try:
        kept = store.get(study, distributions=False)
    except StoreError:
        kept = store.get(study)  # this says what is damaged
    if BY_ID[kept.study.metric].percent is not None:  # only percentiles need distributions
        kept = store.get(study)
    record = derived_anew(store, kept)
    found = summary_of(record)
    if store.keeps_summaries:
        # nothing rests on it: the next report makes it again
        with contextlib.suppress(StoreError):
            # pydantic's own writer makes null of what is not finite
            text = json.dumps(_adapter().dump_python(found, mode="json"), ensure_ascii=False)
            store.put_summary(study, text, method=MADE_BY, attempts=len(record.attempts))
    return found


@cache
def _adapter() -> TypeAdapter[fleet.HostSummary]:
    return TypeAdapter(fleet.HostSummary)


def _read(text: str) -> fleet.HostSummary | None:
    try:
        return _adapter().validate_json(text)
    except ValueError:
        return None


BUNDLE_MAX = 256 * 1024**2
"""The largest bundle of one study that is pulled; a day of trials of 10 s has some 110 MiB, a long search 20."""

AT_ONCE = 4
_ON_THE_WAY, _UNPACKED = BoundedSemaphore(AT_ONCE), Lock()
"""So many bundles are on their way at once, in temporary files of 1 GiB at most, and one of them is unpacked, however
many hosts are asked: none of them may cost more than its own failure."""


def gather(
    hosts: Sequence[fleet.FleetHost],
    access: FleetAccess,
    place: FleetPlace,
    *,
    studies: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> list[fleet.GatheredHost | fleet.Unreached]:
    """Pull the studies of every host into a place; of some names (beginnings of ids) only those.

    A study that is here whole is not pulled again, and of one that has gone on the new attempts are added: what is
    kept is told apart by host, study, trial and attempt.
    """
    place.prepare()

    def task(ready: Ready) -> fleet.GatheredHost:
        with place.of(ready.name) as store:
            pulled = tuple(_pulled(ready, store, name) for name in _wanted(ready, store, studies))
        return fleet.GatheredHost(name=ready.name, store=str(place.place_of(ready.name)), studies=pulled)

    # hosts are told apart first: to one by two names it would be done twice at once
    met = ask_each(hosts, access, lambda _: None)
    good = [one.host for one in met if not isinstance(one, fleet.Unreached)]
    done = iter(ask_each(good, access, task, say=say))
    found = (one if isinstance(one, fleet.Unreached) else next(done) for one in met)
    return [one if isinstance(one, fleet.Unreached) else one.said for one in found]


def pull(ready: Ready, store: Store, study: str) -> None:
    """Pull one study of a host into a store where it is not there whole. Raises HostError and StoreError."""
    if not store.is_finished(study):
        _pulled(ready, store, study)


def _wanted(ready: Ready, store: Store, names: Sequence[str]) -> list[str]:
    """Return the studies of a host that are to be pulled, the oldest first."""
    found = ready.document(LIST, "list", "--json").get("studies")
    if not isinstance(found, list):
        raise HostError("its list of studies is damaged")
    ids = [listed_id(one) for one in reversed(found)]
    for name in names:
        if not any(one.startswith(name) for one in ids):
            raise HostError(f"has no study {name!r}", hint="`virtune show list` there shows its studies")
    # what it has gathered itself is of other hosts
    chosen = [one for one in ids if SEPARATOR not in one and (not names or one.startswith(tuple(names)))]
    return [one for one in chosen if not store.is_finished(one)]


def listed_id(listed: Mapping[str, Any]) -> str:
    """Return the id of a study in a host's list. Raises HostError where it is none."""
    found = listed.get("id") if isinstance(listed, dict) else None
    if not is_word(found):
        raise HostError("its list of studies is damaged")
    return str(found)


def _pulled(ready: Ready, store: Store, name: str) -> fleet.GatheredStudy:
    with _ON_THE_WAY, tempfile.TemporaryFile() as file:
        try:
            ready.asked("fleet", "here", name, "--rows", most_bytes=BUNDLE_MAX, into=file)
        except OSError as error:
            said = f"cannot keep its study {name} in {tempfile.gettempdir()}: {words_of(error)}"
            raise HostError(said, hint="the environment's TMPDIR names another directory") from None
        with _UNPACKED, read_bundle(file, source=f"its study {name}") as bundled:
            if bundled.study.id != name:
                raise HostError(f"gave another study than {name}")
            merged = merge(bundled, store)
    if bundled.finished and bundled.study.kind in KINDS:
        with contextlib.suppress(VirtuneError):  # it is here; what it says the report will tell
            summarised(store, name)
    return merged


_NAMED_MAX = 10
"""So many hosts a hint names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One question, as the study of the first host that asked it; the studies of every host that has measured it, its
    newest first, and when each study was begun.
    """

    study: Study
    every: dict[str, list[str]] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)


def fleet_report(place: FleetPlace, *, names: Sequence[str] = ()) -> fleet.FleetReport:
    """Return what the gathered studies of a place say. `names` chooses hosts.

    The question that was measured on the most hosts is taken, and the newest study of each host.

    Raises UsageError where fewer than two hosts have measured the same, and where two stores hold one study.
    """
    _require_known(place, names)
    asked = _asked(place, names)
    if not asked or max(len(one.every) for one in asked) < 2:
        hint = "measure the same on each host, then `virtune fleet gather`"
        raise UsageError(f"no two hosts in {place} have measured the same", hint=hint)
    chosen = max(asked, key=lambda one: (len(one.every), max(one.begun)))
    found = summaries(place, {host: newest for host, (newest, *_) in chosen.every.items()})
    first: dict[tuple[str, str], str] = {}
    for host, one in found.items():  # ids alone may be alike by chance
        if (before := first.setdefault((one.study, one.source), host)) != host:
            said = f"{before} and {host} hold the same study {one.study}: one host by two names"
            raise UsageError(said, hint="remove the store of one of them")
    others = {host for one in asked for host in one.every} - found.keys()
    return replace(answer(chosen.study, found), others=tuple(sorted(others)))


def _require_known(place: FleetPlace, names: Sequence[str]) -> None:
    known = place.hosts() if names else ()
    if unknown := [name for name in names if name not in known]:
        there = f"hosts there: {', '.join(known[:_NAMED_MAX])}"
        hint = there if known else "`virtune fleet gather` brings studies here"
        raise UsageError(f"no study of {unknown[0]!r} is in {place}", hint=hint)


def fleet_history(place: FleetPlace, *, names: Sequence[str] = (), reference: str = "") -> fleet.FleetHistory:
    """Return how the level of hosts changed over the studies of the question that was repeated most often.

    `names` chooses hosts besides the `reference`. Raises UsageError where no host has measured anything twice.
    """
    besides = [*names, *([reference] if reference else [])]
    _require_known(place, besides)
    asked = [
        one for one in _asked(place, besides if names else ()) if any(len(mine) > 1 for mine in one.every.values())
    ]
    if not asked:
        hint = "measure the same again now and then, then `virtune fleet gather`"
        raise UsageError(f"no host in {place} has measured the same twice", hint=hint)
    chosen = max(asked, key=lambda one: (sum(map(len, one.every.values())), max(one.begun)))
    if reference and (times := len(chosen.every.get(reference, ()))) < 2 * SIDE_MIN:
        hint = f"with {2 * SIDE_MIN} studies it can: measure it whenever the others are measured"
        raise UsageError(f"{reference} has measured this {times} times, which cannot be taken out", hint=hint)
    hosts = histories(chosen.study, _summaries(place, chosen.every), reference=reference)
    return fleet.FleetHistory(study=chosen.study, reference=reference, hosts=hosts)


def _asked(place: FleetPlace, names: Sequence[str]) -> Sequence[_Asked]:
    rows = [one for one in place.finished(KINDS) if not names or one.host in names]
    alike: dict[str, list[FinishedStudy]] = {}
    for one in sorted(rows, key=lambda one: one.host):
        alike.setdefault(one.question, []).append(one)
    asked, of_digest = dict[Hashable, _Asked](), dict[str, _Asked]()
    # of texts that are alike in this one is read: defaults of an older virtune may make two texts one question
    for digest, studies in alike.items():
        if (study := next(filter(None, (_study(place, one) for one in studies)), None)) is not None:
            arms = tuple((arm.name, arm.settings) for arm in study.arms)
            # not when, where or how long it was asked
            key = (study.kind, study.baseline, arms, study.workloads, study.metric, study.seconds, study.simulated)
            of_digest[digest] = asked.setdefault(key, _Asked(study=study))
    for one in rows:
        if (same := of_digest.get(one.question)) is not None:
            same.every.setdefault(one.host, []).append(one.id)
            same.begun.append(one.created)
    return [*asked.values()]


def _study(place: FleetPlace, kept: FinishedStudy) -> Study | None:
    with contextlib.suppress(PlanError), place.of(kept.host, reading=True) as store:
        return study_from_json(store.text(kept.id))
    return None


def drift_of(
    run: fleet.FleetRun, found: Mapping[str, fleet.TaskProgress], place: FleetPlace
) -> tuple[fleet.HostDrift, ...]:
    """Return how the level of the reference host changed from each of its studies to the next."""
    known = (found.get(task.name, fleet.WAITING) for task in run.tasks if task.host.name == run.reference)
    names = [one.study for one in known if one.state is fleet.TaskState.FINISHED]
    if len(names) < 2:
        return ()
    with place.of(run.reference, reading=True) as store:
        records = [by_todays_method(store, name) for name in names]
    drifts = []
    for before, after in pairwise(records):
        for workload in before.study.compared:
            first, then = (level_of(run.reference, one, workload.name) for one in (before, after))
            if first is not None and then is not None:
                drifts.append(drift_between(first, then, workload=workload.name, metric=before.study.metric))
    return tuple(drifts)
