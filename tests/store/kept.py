# SPDX-License-Identifier: Apache-2.0
"""The store that an earlier virtune wrote."""

from pathlib import Path

DATA = Path(__file__).with_name("data")
KEPT = DATA / "format-1-method-7.sqlite.gz"
COMPARE, IMPORT = "20261122-184255-3883", "20261122-184327-e877"
