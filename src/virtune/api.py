# SPDX-License-Identifier: Apache-2.0
"""virtune for programs and notebooks: stored studies as the objects that the reports use, and comparisons that run.
docs/notebook.ipynb shows it.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from virtune.flows.reports.export import measurements_table
from virtune.flows.reports.render import record_document
from virtune.flows.reports.report import finding_of, record_html
from virtune.flows.run.preconditions import Leave
from virtune.flows.run.question import Question, facts_text, study_for
from virtune.flows.run.study import run_study
from virtune.flows.stored.show import current
from virtune.model.errors import StorePlace, UsageError, database_url, is_database
from virtune.model.event import Event, Say
from virtune.model.evidence import Damaged, Listed, StudyRecord
from virtune.model.result import ArmSummary, Result
from virtune.model.study import StudyKind
from virtune.model.study_options import OPTIONS, OptionRow, Takes, options_of
from virtune.model.text import did_you_mean
from virtune.model.verdict import Comparison
from virtune.plan.planfile import plan_of
from virtune.shell import data_directory, missing_module
from virtune.store.store import Store

__all__ = ["StoredStudy", "Studies", "compare", "open"]


Place = str | Path | None
"""Where studies are kept: a file, a database's URL, or None, which is what the command line uses."""


@contextlib.contextmanager
def _its_libraries() -> Iterator[None]:
    """Say what installs a library that is missing, as the command line does."""
    try:
        yield
    except ImportError as error:
        raise missing_module(error) or error from None


class StoredStudy:
    """A study of a store with its figures by today's method: `record` has every trial, `result` what they say."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._host, self.id = store, store.host, name
        self.record: StudyRecord
        self.result: Result
        self.record, self.result = current(store, name)

    @property
    def title(self) -> str:
        """What was to be found out; may be empty."""
        return self.record.study.title

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags; `@TAG` finds the newest study with one."""
        return self.record.study.tags

    @property
    def finished(self) -> bool:
        """Whether all of it was measured."""
        return self.record.finished

    @cached_property
    def finding(self) -> str:
        """What it found, in one sentence."""
        return finding_of(self._here(), self.record)

    @property
    def arms(self) -> tuple[ArmSummary, ...]:
        """The figures of each arm under each workload, in base units (ns, bytes, 1/s)."""
        return self.result.arms

    @property
    def verdicts(self) -> tuple[Comparison, ...]:
        """The verdict on each pair of arms, with its interval: ratios to the baseline, 1 is no change."""
        return self.result.verdicts

    def document(self) -> Mapping[str, Any]:
        """Return all of it as `virtune show --json` writes it."""
        return record_document(self._here(), self.record)

    def frame(self) -> Any:
        """Return a row for each attempt and metric, as `virtune show export` has them: a `pyarrow.Table`, of which
        `.to_pandas()` and `polars.from_arrow()` make their own. Raises MissingToolError without pyarrow.
        """
        with _its_libraries():
            return measurements_table(self.record)

    def html(self) -> str:
        """Return its report, one page without scripts from elsewhere. Raises MissingToolError without the
        libraries of `virtune show report`.
        """
        with _its_libraries():
            return record_html(self._here(), self.record)

    def _here(self) -> Store:
        self._store.host = self._host  # ids mean its host's studies
        return self._store

    def __repr__(self) -> str:
        return f"<study {self.id}: {self.finding}>"


class Studies:
    """The studies of a store, which is only read."""

    def __init__(self, place: StorePlace) -> None:
        self._store = Store(place, reading=True)
        self._store.writable = False  # figures by a newer method are shown, and not kept

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.__exit__(None, None, None)

    def __iter__(self) -> Iterator[Listed]:
        """Yield what a list says of each, the newest first; damaged ones are left out."""
        return (one for one in self._store.list() if not isinstance(one, Damaged))

    def __getitem__(self, name: str) -> StoredStudy:
        """Return the study that `name` means: its id, the beginning of it, or `last`. Raises UsageError."""
        return StoredStudy(self._store, self._store.find(name))


def open(place: Place = None) -> Studies:  # noqa: A001 - of this module, as that of gzip or tarfile
    """Open a store for reading.

    Raises UsageError where there is none; a file that is none raises StoreError when something of it is asked for.
    """
    found = _place(place)
    if not found.exists():
        raise UsageError(f"there is no store {found}", hint="`virtune compare` makes one, and so does compare()")
    return Studies(found)


def compare(
    arms: Mapping[str, str | Sequence[str]], *, store: Place = None, say: Say | None = None, **options: Any
) -> StoredStudy:
    """Run a comparison, store it, and return it. `arms` are the settings of each, as `--set` takes them, by name.

    `options` are those of `virtune compare`: `rig="vhost-user"`, `workloads=("randread-4k",)`, `budget="60s"`; times
    are in seconds and sizes in bytes, or texts. `say` is called with what happens (`virtune.model.event`). Raises
    UsageError and PlanError for what cannot be asked, and what else `virtune compare` ends with.
    """
    known = options_of(StudyKind.COMPARE)
    for name in options:
        if name not in known or name in _NOT_HERE:
            raise UsageError(f"compare() has no option {name!r}", hint=did_you_mean(name, tuple(known)) or "")
    named = tuple((name, (words,) if isinstance(words, str) else tuple(words)) for name, words in arms.items())
    planned = {name for name in options if OPTIONS[name].plan and OPTIONS[name].takes is not Takes.SETTINGS}
    file = plan_of({OPTIONS[name].plan: options[name] for name in planned})
    read = {name: getattr(file, name) if name in planned else _read(OPTIONS[name], options[name]) for name in options}
    question = Question(kind=StudyKind.COMPARE, arms=named, **read)
    study = study_for(question)
    leave = Leave(write_to=question.allow_write_to, in_use=question.allow_in_use)
    with Store(_place(store)) as kept:
        run_study(study, store=kept, say=say or _quiet, leave=leave, facts=facts_text(Path(study.scratch)))
    return open(store)[study.id]


_NOT_HERE = ("arms", "fail_if")
"""Given otherwise, or asked of the verdicts afterwards."""


def _read(row: OptionRow, value: Any) -> Any:
    """Return the value of an option that plan files do not have."""
    if row.many:
        return (value,) if isinstance(value, str) else tuple(value)
    return Path(value) if row.takes is Takes.PLACE else value


def _place(place: Place) -> StorePlace:
    if place is None:
        return data_directory() / "virtune.sqlite"
    text = os.fspath(place)
    return database_url(text) if is_database(text) else Path(text)


def _quiet(_: Event) -> None:
    """Say nothing."""
