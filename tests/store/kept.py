# SPDX-License-Identifier: Apache-2.0
"""A store whose measurements are of a method before today's."""

from pathlib import Path

DATA = Path(__file__).with_name("data")
KEPT = DATA / "older-method.sqlite.gz"
COMPARE, IMPORT = "20261122-184255-3883", "20261122-184327-e877"
