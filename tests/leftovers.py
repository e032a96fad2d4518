# SPDX-License-Identifier: Apache-2.0
"""What a killed virtune left, made without killing one."""

import os
from pathlib import Path

from virtune import warden

NO_PROCESS = 2**22 + 1
"""A number above the largest of a process."""


def left_over(place: Path) -> Path:
    """Make a directory of a virtune that is gone."""
    os.close(warden.make_run_directory(place, pid=NO_PROCESS))
    return place
