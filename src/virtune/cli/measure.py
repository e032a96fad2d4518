# SPDX-License-Identifier: Apache-2.0
"""`virtune measure`: one disk stack on this host."""

from typing import Any

import click

from virtune.cli.common.options import json_option, progress_options, report_option, store_option, study_options
from virtune.cli.common.result_output import ResultOutput, threshold_options
from virtune.model.errors import UsageError


@click.command(name="measure")
@study_options("measure")
@report_option
@threshold_options
@progress_options
@json_option
@store_option
def command(**asked: Any) -> int:
    """Measure one disk stack on this host.

    \b
    Examples:
      virtune measure --rig metal --workload four-corners
      virtune measure --set disk.aio=native --set disk.format=qcow2
      virtune measure --workload log-sync-16k --rounds 8 --fail-if 'sync.p99 > 10ms'
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.cli.common.run_study import StudyRequest, ask_for
    from virtune.model.study import StudyKind

    out = ResultOutput.read(asked)
    relative = next((one for one in out.conditions if one.value is None), None)
    if relative is not None:
        raise UsageError(
            f"`{relative.text}` is a change against a baseline, and one stack has none",
            hint="a limit with its unit, such as `latency.p99 > 2ms`; or `virtune compare`",
        )
    return ask_for(StudyRequest.read(StudyKind.MEASURE, asked, out))
