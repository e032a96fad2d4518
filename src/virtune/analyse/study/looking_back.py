# SPDX-License-Identifier: Apache-2.0
"""The verdicts as they were after earlier rounds: how the intervals of a comparison narrowed while it ran."""

from collections.abc import Iterator
from dataclasses import replace

from virtune.analyse.study.verdicts import judge
from virtune.model.evidence import StudyRecord
from virtune.model.study import Study
from virtune.model.verdict import Comparison

LOOKS_MAX = 24
"""More rounds than these are a pixel or two apart in a picture, and each takes computing time."""

_FEWEST = 2


def looked_back(record: StudyRecord) -> tuple[tuple[int, tuple[Comparison, ...]], ...]:
    """Return the verdicts of a comparison after some of its rounds, from the first that can have an interval to the
    last.

    Those of a study that was looked at while it ran are those of its looks, by the trials and the looks up to each.
    """
    study = record.study
    if study.imported or len(study.arms) < 2:
        return ()
    return tuple((number, judge(_up_to(record, number))) for number in _chosen(study, record))


def _chosen(study: Study, record: StudyRecord) -> Iterator[int]:
    """Yield at most LOOKS_MAX rounds: of a study with looks those, of any other all from the second on."""
    done = max((one.trial.round for one in record.trials if one.measurement is not None), default=0)
    looks = [number for number, _ in study.looks or () if number <= done]
    first = study.fewest_rounds if study.sequential else _FEWEST
    rounds = looks or list(range(first, done + 1))
    step = max(1, -(-len(rounds) // LOOKS_MAX))
    yield from sorted({*rounds[::step], *rounds[-1:]})


def _up_to(record: StudyRecord, number: int) -> StudyRecord:
    study = record.study
    looks = None if study.looks is None else tuple(one for one in study.looks if one[0] <= number)
    return replace(
        record,
        study=replace(study, looks=looks),
        trials=tuple(one for one in record.trials if one.trial.round <= number),
        attempts=tuple(one for one in record.attempts if one.trial.round <= number),
    )
