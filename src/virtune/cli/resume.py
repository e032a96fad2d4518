# SPDX-License-Identifier: Apache-2.0
"""`virtune resume`: go on with a study that was interrupted."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common.options import (
    json_option,
    progress_options,
    report_option,
    require_store,
    store_option,
    study_options,
)
from virtune.cli.common.result_output import ResultOutput, threshold_options
from virtune.model.errors import StorePlace

if TYPE_CHECKING:
    from virtune.flows.run.preconditions import Leave
    from virtune.model.evidence import StudyRecord
    from virtune.model.study import Study
    from virtune.store.store import Store


@click.command(name="resume")
@click.argument("study", default="last")
@study_options("resume")
@report_option
@progress_options
@json_option
@threshold_options
@store_option
def command(
    study: str,
    allow_write_to: str | None,
    allow_in_use: bool,  # noqa: FBT001
    report: Path | None,
    as_json: bool,  # noqa: FBT001
    store: StorePlace,
    **asked: Any,
) -> int:
    """Continue STUDY (an id, the beginning of one, or `last`): its finished trials are kept.

    The others run in the order of the original seed, until its conditions, or those of --fail-if, are decided.
    """
    from virtune.cli.common.run_study import going_on
    from virtune.cli.show import require_no_more
    from virtune.flows.run.preconditions import Leave
    from virtune.flows.run.study import resume_study
    from virtune.flows.stored.show import by_todays_method
    from virtune.store.store import Store

    out = ResultOutput.read({**asked, "as_json": as_json, "report": report})
    require_store(store, study)
    with Store(store) as kept:
        name = kept.find(study)
        kept.require_own(name)
        record = by_todays_method(kept, name)
        leave = Leave(write_to=allow_write_to, in_use=allow_in_use)

        def now() -> "StudyRecord":  # another process may have gone on with it until this one took it over
            return by_todays_method(kept, name)

        if record.study.search is not None or record.study.sweep is not None:
            require_no_more(record.study, asked)
            return _search_or_sweep(kept, record.study, now, leave, out)
        return going_on(
            kept,
            record.study,
            lambda say: resume_study(now(), store=kept, say=say, leave=leave, conditions=out.conditions),
            replace(out, conditions=out.conditions or record.study.conditions),
        )


def _search_or_sweep(
    kept: "Store", study: "Study", now: "Callable[[], StudyRecord]", leave: "Leave", out: ResultOutput
) -> int:
    from virtune.cli import sweep
    from virtune.cli.common import run_search
    from virtune.flows.run.sweep import resume_sweep
    from virtune.flows.run.tune import resume_tuning

    if study.sweep is not None:
        return sweep.going_on(kept, study, lambda say: resume_sweep(now(), store=kept, say=say, leave=leave), out)
    run_search.searching(kept, study, lambda say: resume_tuning(now(), store=kept, say=say, leave=leave), out)
    return 0
