# SPDX-License-Identifier: Apache-2.0
"""The second QEMU, newer than the installed one, that `tools/qemu-beside` puts beside it."""

from pathlib import Path

import pytest

BESIDE = Path(__file__).parents[1] / ".venv" / "qemu-beside" / "bin" / "qemu-system-x86_64"


def qemu_beside() -> str:
    """Its path; a distribution whose backports have none leaves the test out, Debian 12 must have it."""
    if not BESIDE.exists() and "VERSION_CODENAME=bookworm" not in Path("/etc/os-release").read_text():
        pytest.skip("this distribution has no backports with a second QEMU")
    return str(BESIDE)
