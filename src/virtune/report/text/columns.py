# SPDX-License-Identifier: Apache-2.0
"""Tables with a column per arm, split into several tables if the terminal is too narrow: nothing is cut."""

from collections.abc import Callable, Sequence

from rich.console import Console, ConsoleOptions, RenderResult

from virtune.report.text.layout import Records

COLUMNS_MAX = 4
"""Arms beside the baseline: more are hard to read, however wide the terminal."""


class SideBySide:
    """A table of the baseline with as many other arms as fit, then one with the next arms; an empty table is left
    out.
    """

    def __init__(self, table: Callable[[Sequence[str]], Records], arms: Sequence[str]) -> None:
        self.table, self.arms = table, arms

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out as many arms as fit the width; one that does not fit is laid out as paragraphs."""
        start = 0
        while start < max(1, len(self.arms)):
            count = min(COLUMNS_MAX, len(self.arms) - start)
            while count > 1 and not self.table(self.arms[start : start + count]).fits(options.max_width):
                count -= 1
            table = self.table(self.arms[start : start + count])
            if table.rows:
                yield table
            start += max(1, count)
