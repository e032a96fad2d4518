# SPDX-License-Identifier: Apache-2.0
"""The generated reference pages are those that the source would generate now."""

import sys
from pathlib import Path

import pytest

from virtune.shell import run

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_reference_pages_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = run([sys.executable, "-m", "tools.reference", "--check"], timeout_seconds=60, ok=(0, 1))
    assert (done.status, done.stderr) == (0, "")
