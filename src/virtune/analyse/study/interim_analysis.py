# SPDX-License-Identifier: Apache-2.0
"""The interim analysis of a sequential study: its verdicts so far, and what needs more rounds."""

from dataclasses import dataclass

from virtune.analyse.study.lost_arms import Lost
from virtune.analyse.study.thresholds import open_workloads, rulings_of
from virtune.analyse.study.verdicts import evidence_of, verdicts_of
from virtune.model.condition import ThresholdResult
from virtune.model.evidence import StudyRecord
from virtune.model.verdict import Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class InterimAnalysis:
    """Every pair's verdict and every condition's result so far, the workloads that need another round, and the arms
    left out of it.
    """

    verdicts: tuple[Comparison, ...]
    rulings: tuple[ThresholdResult, ...]
    workloads: frozenset[str]
    lost: Lost


def look(record: StudyRecord) -> InterimAnalysis:
    """Judge the trials so far. Both kinds of error are bounded however often this is done."""
    evidence = evidence_of(record)
    verdicts = tuple(verdicts_of(evidence))
    rulings = rulings_of(evidence, record.study.conditions)
    return InterimAnalysis(
        verdicts=verdicts,
        rulings=rulings,
        workloads=open_workloads(evidence, verdicts, rulings),
        lost=evidence.lost,
    )
