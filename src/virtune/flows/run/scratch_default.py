# SPDX-License-Identifier: Apache-2.0
"""The default directory of scratch images."""

import os
from pathlib import Path

SCRATCH = "/var/tmp/virtune-"  # noqa: S108 - whoever makes it first, it is looked at before it is used


def default_scratch() -> Path:
    """Return the default directory of scratch images: on a disk, unlike /tmp, and kept between runs.

    Each user has one, because a directory in which another user could replace files is not safe.
    """
    return Path(f"{SCRATCH}{os.geteuid()}")
