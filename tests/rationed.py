# SPDX-License-Identifier: Apache-2.0
"""A disk quota that is used up: a btrfs, whose quotas every kernel has that has it."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path


def use_up(place: Path) -> None:
    """Allow less than is there: whatever is written from now on gets EDQUOT."""
    subprocess.run(["btrfs", "qgroup", "limit", "16K", place], check=True)


def no_quota(*, of: Path) -> list[str]:
    """The command that lifts it: to change a limit takes room, too."""
    return ["btrfs", "quota", "disable", str(of)]


@contextlib.contextmanager
def rationed(directory: Path) -> Iterator[Path]:
    """Mount a btrfs of 1 GiB with quotas, and no limit yet."""
    place, image = directory / "rationed", directory / "btrfs"
    place.mkdir()
    image.touch()
    os.truncate(image, 1024**3)
    subprocess.run(["mkfs.btrfs", "-q", image], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    try:
        subprocess.run(["btrfs", "quota", "enable", place], check=True)
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)
