# SPDX-License-Identifier: Apache-2.0
"""The loop devices on files of a directory."""

import contextlib
from pathlib import Path


def loops_on(place: Path) -> list[str]:
    """Return their names, also of those on files that have no name any more."""
    found = []
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            found += [file.parts[3]] if file.read_text().startswith(f"{place}/") else []
    return found
