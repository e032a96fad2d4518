# SPDX-License-Identifier: Apache-2.0
"""How many I/Os the jobs of a load kept in flight, as its result says."""

import contextlib

from virtune.fio.results import read_result, text_of
from virtune.model.errors import ReadError
from virtune.model.evidence import Check
from virtune.model.workload import BACKGROUND


def depth_seen(output: bytes, asked: int) -> Check:
    """Check the depth of every job but those that only make a background."""
    found: set[str] = set()
    with contextlib.suppress(ReadError):
        loads = [one for one in read_result(text_of(output)).loads if one.name != BACKGROUND]
        found = {dict(one.options or ()).get("iodepth", "") for one in loads} - {""}
    return Check(
        setting="workload.iodepth",
        asked=str(asked),
        found=" and ".join(sorted(found)) or None,
        proof="the options of every job in the result of the load",
    )
