# SPDX-License-Identifier: Apache-2.0
"""A store whose measurements are of a method before today's."""

from pathlib import Path

from virtune.store.store import Store

DATA = Path(__file__).with_name("data")
KEPT = DATA / "older-method.sqlite.gz"
COMPARE, IMPORT = "20261122-184255-3883", "20261122-184327-e877"


def moved(before: Store, after: Store, name: str) -> None:
    """Copy a study from one store to another."""
    kept = before.get(name)
    after.add_study(kept.study, facts=kept.facts)
    for trial in kept.attempts:
        after.add_trial(name, trial, before.captures(name, trial.trial.number, attempt=trial.attempt))
    if kept.finished:
        after.finish(name)
