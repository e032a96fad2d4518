# SPDX-License-Identifier: Apache-2.0
"""Versions of QEMU in which io_uring is broken; a distribution may carry the fix."""

HANGS = ((7, 1), (10, 1))
"""All of these: a request is never completed."""

CRAWLS_ON_AHCI = ((10, 2, 0), (10, 2, 1))
"""Up to 499 ms a request on IDE and SATA disks (a 128 MB read took 25.76 s, 1.30 s once fixed)."""


def io_uring_hangs(version: tuple[int, ...]) -> bool:
    """Whether io_uring hangs in a version of QEMU."""
    return version[:2] in HANGS


def io_uring_crawls_on_ahci(version: tuple[int, ...]) -> bool:
    """Whether io_uring completes late on IDE and SATA disks in a version of QEMU."""
    return version[:3] in CRAWLS_ON_AHCI
