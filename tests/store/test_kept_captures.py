# SPDX-License-Identifier: Apache-2.0
"""A store that was kept, of a method before today's, with what was said of it: its captures give the same figures."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.store.kept import COMPARE, DATA, IMPORT, KEPT

from virtune.flows.stored.show import current
from virtune.model.evidence import Listed
from virtune.store.store import Store

SAID: dict[str, Any] = json.loads((DATA / "older-method.json").read_text())
CHECK, TUNE = "20261122-184338-7540", "20261122-184358-4b1a"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    place = tmp_path / "before.sqlite"
    place.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with Store(place) as found:
        return found


def test_every_study_of_it_is_listed_and_read(store: Store) -> None:
    listed = [one for one in store.list() if isinstance(one, Listed)]
    assert {one.study.id: (one.study.kind, one.done) for one in listed} == {
        COMPARE: ("compare", 16), IMPORT: ("import", 1), CHECK: ("check", 3), TUNE: ("tune", 22),
    }  # fmt: skip
    for name in (COMPARE, IMPORT, CHECK, TUNE):
        assert store.get(name).study.id == name


@pytest.mark.parametrize("name", [COMPARE, IMPORT])
def test_its_raw_captures_give_the_figures_that_they_gave(store: Store, name: str) -> None:
    _, result = current(store, name)
    values = {
        f"{arm.arm} {arm.workload} {value.metric}": value.value
        for arm in result.arms
        for value in arm.values
        if value.metric in ("iops", "bandwidth")
    }
    assert values == pytest.approx(SAID[name]["values"], rel=1e-9)


def test_its_verdicts_stand(store: Store) -> None:
    _, result = current(store, COMPARE)
    for said, now in zip(SAID[COMPARE]["verdicts"], result.verdicts, strict=True):
        assert (now.candidate, now.baseline, now.verdict) == (said["candidate"], said["baseline"], said["verdict"])
        assert now.ratio is not None
        assert [now.ratio.estimate, now.ratio.low, now.ratio.high] == pytest.approx(
            [said["ratio"]["estimate"], said["ratio"]["low"], said["ratio"]["high"]], rel=1e-6
        )
