# SPDX-License-Identifier: Apache-2.0
"""The options of a study: the value of each, and where it came from."""

from collections.abc import Iterator

from virtune.model.option import Provenance
from virtune.model.study import Study
from virtune.model.study_options import OPTIONS, flag_of


def option_lines(study: Study) -> Iterator[str]:
    """Yield a line for each option: its flag, its value, its origin, and the reason for a default."""
    if not study.options:
        yield "where options came from was not kept with this study"
        return
    wide = max(len(flag_of(one.name)) for one in study.options if one.name in OPTIONS)
    for one in study.options:
        known = OPTIONS.get(one.name)  # a later virtune may have dropped it
        why = f": {known.why}" if known and known.why and one.source is Provenance.DEFAULT else ""
        flag = flag_of(one.name) if known else one.name
        yield f"{flag:<{wide}}  {one.value}  ({one.source}{why})"
