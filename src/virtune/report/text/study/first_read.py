# SPDX-License-Identifier: Apache-2.0
"""What was read of a study's images before its trials, in words."""

from collections.abc import Iterator

from virtune.model.study import FirstRead, Study
from virtune.model.units import format_bytes, format_seconds
from virtune.report.text.words import count_text


def first_read_lines(study: Study) -> Iterator[str]:
    """Yield a line for each time that the images of a study were read, or were not, before trials of it."""
    yield from (_line(one, study) for one in study.first_reads)


def _line(one: FirstRead, study: Study) -> str:
    what = "the target" if study.target is not None and one.images == 1 else "the scratch image"
    if one.images > 1:
        what = f"the {count_text(one.images, 'image')}"
    were = "were" if one.images > 1 else "was"
    when = "before the first trial" if not one.after else f"when it went on after {count_text(one.after, 'trial')}"
    if not one.read_bytes:
        return f"{what} {were} not read {when}: {one.why}"
    took = f"{format_bytes(one.read_bytes)} in {format_seconds(one.seconds)}"
    if one.why:
        took = f"{format_bytes(one.read_bytes)} of {format_bytes(one.size_bytes)}, then {one.why}"
    return f"{what} {were} read once {when} ({took})"
