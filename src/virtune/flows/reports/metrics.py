# SPDX-License-Identifier: Apache-2.0
"""The store's figures for Prometheus: verdicts and differences of the newest studies, and the host's fitness.

Names follow Prometheus' rules: base units, ratios as ratios, settings as `_info`. `domain` is the libvirt exporters'
label, so that a VM's verdicts can be joined with its counters. Samples have no timestamps: a scrape gives what is
stored now.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from virtune import __version__
from virtune.flows.run.check import fitness
from virtune.flows.stored.show import current, newest
from virtune.model.errors import StoreError
from virtune.model.evidence import Listed
from virtune.model.measurement import METHOD
from virtune.model.result import Fitness, Result
from virtune.model.study import StudyKind
from virtune.model.text import printable
from virtune.model.verdict import Verdict
from virtune.store.store import Store

if TYPE_CHECKING:
    from prometheus_client.core import Metric

STUDIES_MAX = 20
"""How many of the newest studies get their own series; each label set is a series that Prometheus keeps."""

_SAID = (*Verdict, *(f"perhaps {one}" for one in (Verdict.BETTER, Verdict.WORSE)))
"""The verdicts as pages say them: one that is better with a doubt is not `better`."""

_PAIR = ("study", "workload", "metric", "arm", "baseline", "domain")
_LABEL_MAX = 200

DESCRIPTIONS = {
    "virtune_build_info": "The version of virtune and the number of its method.",
    "virtune_studies": "Studies in the store.",
    "virtune_study_trials": "Measured trials of a study.",
    "virtune_study_value": "An arm's value in the metric's base unit (ns, bytes, 1/s, CPU seconds per I/O), as its"
    " page has it: of a typical round where arms are compared within rounds, else over all rounds.",
    "virtune_study_difference_ratio": "Candidate by baseline: estimate (mid) and ends of its interval (low, high).",
    "virtune_study_verdict": "1 for the verdict of a pair, 0 for the others; perhaps better and perhaps worse are"
    " those that an arm's lasting levels would undo.",
    "virtune_host_detectable_difference_ratio": "Smallest difference that 5 minutes find, by the last check.",
    "virtune_host_noise_ratio": "Spread of the IOPS of the last check's windows.",
    "virtune_scrape_duration_seconds": "How long this scrape took.",
}
"""Every metric with its help; the dashboard may name no other."""


_Kept = TypeVar("_Kept", Result, Fitness)


class Derived:
    """What was derived for the last scrape, so that the next one derives only what has changed since: results by
    study, number of attempts and method.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[Hashable, ...], Result | Fitness] = {}
        self._used: dict[tuple[Hashable, ...], Result | Fitness] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def scrape(self) -> Iterator[None]:
        """Keep what is used in the block, and forget the rest; one scrape at a time."""
        with self._lock:
            self._used = {}
            yield
            self._kept = self._used

    def of(self, store: Store, one: Listed, derive: Callable[[Store, str], _Kept]) -> _Kept:
        """Return what is derived of a study; raises StoreError for one that is damaged."""
        # a study of the same id is never changed but by further attempts
        key = derive, one.study.id, one.done, one.failed, one.finished, len(one.study.trials), METHOD
        self._used[key] = found = self._kept[key] if key in self._kept else derive(store, one.study.id)
        return cast("_Kept", found)


def _result(store: Store, study: str) -> Result:
    return current(store, study)[1]


def _fitness(store: Store, study: str) -> Fitness:
    return fitness(store.get(study))


def exposition(store: Store, accept: str = "", derived: Derived | None = None) -> tuple[bytes, str]:
    """Return the figures as text and its content type: OpenMetrics where it is accepted, else Prometheus' own.

    `derived` is kept from scrape to scrape by a caller that answers many.
    """
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry()
    registry.register(_Collected(store, derived or Derived()))
    encode, kind = choose_encoder(accept)
    return encode(registry), kind


class _Collected:
    """The collector that Prometheus' library calls."""

    def __init__(self, store: Store, derived: Derived) -> None:
        self.store, self.derived = store, derived

    def describe(self) -> list[Any]:
        """Return nothing, or the metrics would be collected twice."""
        return []

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.core import GaugeMetricFamily

        families: dict[str, Any] = {
            name: GaugeMetricFamily(name, words, labels=_LABELS.get(name, ())) for name, words in DESCRIPTIONS.items()
        }
        with self.derived.scrape():
            begun = time.monotonic()
            families["virtune_build_info"].add_metric([__version__, str(METHOD)], 1)
            page = self.store.page(words="", kind="", limit=STUDIES_MAX, offset=0, own=True)
            families["virtune_studies"].add_metric([], page.total)
            for one in page.rows:
                if isinstance(one, Listed) and one.study.search is None and one.study.sweep is None and one.done:
                    with contextlib.suppress(StoreError):  # it is damaged; the others are not affected
                        _add(families, self.derived.of(self.store, one, _result))
            _add_host(families, self.store, self.derived)
            families["virtune_scrape_duration_seconds"].add_metric([], time.monotonic() - begun)
        yield from families.values()


_LABELS: dict[str, tuple[str, ...]] = {
    "virtune_build_info": ("version", "method"),
    "virtune_study_trials": ("study", "kind"),
    "virtune_study_value": ("study", "workload", "metric", "arm", "domain"),
    "virtune_study_difference_ratio": (*_PAIR, "bound"),
    "virtune_study_verdict": (*_PAIR, "verdict"),
    "virtune_host_detectable_difference_ratio": ("study",),
    "virtune_host_noise_ratio": ("study",),
}


def _add(families: dict[str, Any], result: Result) -> None:
    study = result.study
    families["virtune_study_trials"].add_metric([study.id, study.kind], result.trials_done)
    domains = {arm.name: arm.stack.domain or "" for arm in study.arms}
    for summary in result.arms:
        for value in summary.values:
            whose = (study.id, summary.workload, value.metric, summary.arm, domains.get(summary.arm, ""))
            families["virtune_study_value"].add_metric([*map(_label, whose)], value.shown)
    for one in result.verdicts:
        pair = (study.id, one.workload, one.metric, one.candidate, one.baseline, domains.get(one.candidate, ""))
        labels = tuple(map(_label, pair))
        for said in _SAID:
            families["virtune_study_verdict"].add_metric([*labels, said], said == one.said)
        if one.ratio is not None:
            for bound, number in (("low", one.ratio.low), ("mid", one.ratio.estimate), ("high", one.ratio.high)):
                families["virtune_study_difference_ratio"].add_metric([*labels, bound], number)


def _add_host(families: dict[str, Any], store: Store, derived: Derived) -> None:
    for one in (one for one in newest(store, 1, kind=StudyKind.CHECK) if one.done):
        found = derived.of(store, one, _fitness)
        smallest = found.reach(5)
        if smallest is not None:
            families["virtune_host_detectable_difference_ratio"].add_metric([one.study.id], smallest)
        if found.windows_cv is not None:
            families["virtune_host_noise_ratio"].add_metric([one.study.id], found.windows_cv)


def _label(text: str) -> str:
    return printable(text, most=_LABEL_MAX)
