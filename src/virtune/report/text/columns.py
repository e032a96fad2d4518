# SPDX-License-Identifier: Apache-2.0
"""Tables with a column an arm, set below one another where the terminal is too narrow for all: nothing is cut."""

from collections.abc import Callable, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table

from virtune.model.study import Arm

COLUMNS_MAX = 4
"""Arms beside the baseline: more are hard to read, however wide the terminal."""


class SideBySide:
    """A table of the baseline with as many other arms as fit, then one of the next; an empty table is left out."""

    def __init__(self, table: Callable[[Sequence[Arm]], Table], arms: Sequence[Arm]) -> None:
        self.table, self.arms = table, arms

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Take as many arms as fit into the width; one that fits nowhere is folded instead of cut."""
        start = 0
        while start < max(1, len(self.arms)):
            count = min(COLUMNS_MAX, len(self.arms) - start)
            while count > 1 and not self._fits(start, count, console, options):
                count -= 1
            table = self.table(self.arms[start : start + count])
            if not self._fits(start, count, console, options):
                for column in table.columns:
                    column.no_wrap, column.overflow, column.min_width = False, "fold", None
            if table.row_count:
                yield table
            start += max(1, count)

    def _fits(self, start: int, count: int, console: Console, options: ConsoleOptions) -> bool:
        wide = options.update(width=10_000, max_width=10_000)
        needed = Measurement.get(console, wide, self.table(self.arms[start : start + count])).maximum
        return needed <= options.max_width
