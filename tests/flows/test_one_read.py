# SPDX-License-Identifier: Apache-2.0
"""What shows a study reads it once, and a scrape derives only what has changed since the last one."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from virtune.flows.reports.export import bundle
from virtune.flows.reports.metrics import Derived, exposition
from virtune.flows.reports.render import study_document
from virtune.flows.reports.report import charts, report_html
from virtune.model.evidence import Listed, StudyRecord
from virtune.store.store import Store

KEPT = Path(__file__).parents[1] / "store" / "data" / "older-method.sqlite.gz"


class Counting(Store):
    """A store that counts how often a study is read."""

    reads = 0

    def get(self, study_id: str, *, distributions: bool = True) -> StudyRecord:
        """Read a study, and count it."""
        self.reads += 1
        return super().get(study_id, distributions=distributions)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "before.sqlite"
    made.write_bytes(gzip.decompress(KEPT.read_bytes()))
    return made


def _ids(store: Store) -> list[str]:
    return [one.study.id for one in store.list() if isinstance(one, Listed) and one.done]


@pytest.mark.parametrize(
    "shown",
    [lambda store, name: bundle(store, name, pages=False), study_document, charts],
    ids=["bundle", "document", "pictures"],
)
def test_each_kind_of_study_is_read_once(place: Path, shown: Callable[[Store, str], object]) -> None:
    with Counting(place) as store:
        for number, name in enumerate(_ids(store), 1):
            assert shown(store, name) is not None
            assert store.reads == number


def test_a_bundle_with_its_page_reads_a_study_once(place: Path) -> None:
    with Counting(place) as store:
        assert bundle(store, _ids(store)[0], pages=True)
        assert store.reads == 1
        assert report_html(store, _ids(store)[0])
        assert store.reads == 2


def _figures(text: bytes) -> list[str]:
    lines = text.decode().splitlines()
    return [line for line in lines if not line.startswith("virtune_scrape_duration_seconds")]


def test_a_second_scrape_reads_only_what_has_changed(place: Path) -> None:
    derived = Derived()
    with Counting(place) as store:
        first, _ = exposition(store, derived=derived)
        assert store.reads > 1
        store.reads = 0
        second, _ = exposition(store, derived=derived)
        assert store.reads == 0
        assert _figures(second) == _figures(first)
        compared = next(
            one for one in store.list() if isinstance(one, Listed) and one.study.kind == "compare" and one.done
        )
        record = store.get(compared.study.id)
        number = max(one.trial.number for one in record.trials) + 1
        last = record.trials[-1]
        trial = replace(last.trial, number=number, round=last.trial.round + 1)
        store.add_trial(compared.study.id, replace(last, trial=trial, attempt=1), [])
        store.reads = 0
        third, _ = exposition(store, derived=derived)
        assert store.reads == 1
        assert _figures(third) != _figures(first)
        assert _figures(third) == _figures(exposition(store)[0])
