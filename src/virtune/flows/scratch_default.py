# SPDX-License-Identifier: Apache-2.0
"""Where scratch images lie unless told otherwise."""

import os
from pathlib import Path

SCRATCH = "/var/tmp/virtune-"  # noqa: S108 - whoever makes it first, it is looked at before it is used


def default_scratch() -> Path:
    """Return where scratch images lie unless told otherwise: on a disk, unlike /tmp, and kept between runs.

    Each user has a directory, since nobody may use one in which another user could exchange what lies there.
    """
    return Path(f"{SCRATCH}{os.geteuid()}")
