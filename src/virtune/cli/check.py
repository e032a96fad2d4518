# SPDX-License-Identifier: Apache-2.0
"""`virtune check`: is this host fit to measure?"""

from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common.options import (
    json_option,
    read_options,
    say_options,
    store_option,
    study_options,
    verbose_option,
)
from virtune.model.errors import StorePlace

if TYPE_CHECKING:
    from virtune.model.evidence import StudyRecord
    from virtune.model.result import Neighbour

BREACHED = 4
"""The exit code when a requested limit is not kept."""


@click.command(name="check")
@study_options("check")
@click.option("--fail-if-noisier", type=click.FloatRange(0.001, 10), default=None, metavar="SHARE",
              help="Exit 4 if a 5-minute comparison could not detect a difference of this size (0.03 is 3 %), or"
                   " this host is NOT FIT for another reason.")  # fmt: skip
@click.option("--quiet", "-q", is_flag=True, help="Print the result only: no progress and no notes.")
@verbose_option
@json_option
@store_option
def command(
    *,
    fail_if_noisier: float | None,
    quiet: bool,
    verbose: bool,
    as_json: bool,
    store: StorePlace,
    **asked: Any,
) -> int:
    """Say whether this host is fit to measure: an A/A test of about a minute.

    Says how noisy the host is and for how long it remembers, whether it drifts, the smallest difference that a
    comparison could find here in 1, 5 and 15 minutes, how long a trial should take, which gates are near their
    limits, who else works here, and what to do about it. The trials are kept like those of any study.

    \b
    Examples:
      virtune check
      virtune check --seconds 3m --rig storage-daemon --set disk.aio=native
      virtune check --json --fail-if-noisier 0.03
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.cli.common.output import say_more, show_check
    from virtune.cli.common.progress import Face
    from virtune.cli.common.under_face import under_face
    from virtune.flows.run.check import check_study, fitness, run_check
    from virtune.flows.run.preconditions import Leave
    from virtune.store.store import Store

    options = read_options("check", asked)
    study, facts = check_study(options)
    if verbose:
        say_options(study)
    leave = Leave(write_to=options.allow_write_to, in_use=options.allow_in_use)
    with Store(store) as kept:

        def show(around: "tuple[Neighbour, ...]") -> "StudyRecord":
            record = kept.get(study.id)
            show_check(record, as_json=as_json, around=around, brief=not verbose)
            return record

        record = under_face(
            Face(quiet=quiet, verbose=verbose),
            lambda say: run_check(study, store=kept, say=say, leave=leave, facts=facts),
            lambda: None,  # a part of an A/A test says nothing of the host
            show,
            store=kept,
            study=study,
        )
    say_more(silent=as_json or verbose or quiet)
    return 0 if fail_if_noisier is None or fitness(record).finds(fail_if_noisier) else BREACHED
