# SPDX-License-Identifier: Apache-2.0
"""Where each run of a text begins, when fio's normal output of several runs stands in one text.

A run begins with the command in a transcript, the first job that fio announces, its version, or its results: with
what of these comes first after the results of the run before. Results of the same process that come again are of
--status-interval, and every machine of `fio --client` reports once: neither is another run.
"""

from dataclasses import dataclass, field

from virtune.fio import text_lines as fio_lines
from virtune.fio.command_line import words_of

_SIGNS = ("(g=", "(groupid=", "fio", "Run status group", "hostname=")
"""What a line has that says something of a run; others are not matched against anything."""

ALL_CLIENTS = "All clients"


def split_runs(text: str) -> list[str]:
    """Return the text of each run, in their order; all of it where there is one run or none."""
    splitter = _Splitter()
    for position, line in fio_lines.placed_lines(text):
        if any(sign in line for sign in _SIGNS):
            splitter.take(position, line)
    ends = [*splitter.begins, len(text)]
    return [text[begin:end] for begin, end in zip([0, *splitter.begins], ends, strict=True)]


@dataclass(slots=True)
class _Splitter:
    """Takes the lines one by one. `begins` are where the second run and those after it begin."""

    begins: list[int] = field(default_factory=list)
    _reported: set[tuple[str, str, str]] = field(default_factory=set)
    _closed: set[str] = field(default_factory=set)
    _next: int | None = None
    _announced: bool = False
    _machines: int = 0
    _further_machines: int = 0
    _reports: int = 1

    def take(self, position: int, line: str) -> None:
        """Take one line and where it begins."""
        if match := fio_lines.HEADER.match(line):
            self._header(position, (match["name"], match["group"], match["pid"]))
        elif match := fio_lines.STATUS.match(line):
            self._closed.add(match["group"])
        elif fio_lines.CLIENT.match(line):
            self._may_begin(position)
            if self._reported:
                self._further_machines += 1
            else:
                self._machines += 1
        elif fio_lines.DEFINITION.match(line) or fio_lines.VERSION.match(line):
            self._may_begin(position)
            self._announced = bool(self._reported)
        elif words_of(line) is not None:
            self._may_begin(position)

    def _may_begin(self, position: int) -> None:
        """Note the first line after results that may belong to another run."""
        if self._reported and self._next is None:
            self._next = position

    def _header(self, position: int, key: tuple[str, str, str]) -> None:
        """Take the head of a group's results."""
        name, group, _ = key
        if self._machines:
            # all machines answer before the first reports, and each reports once
            again = group in self._closed and key not in self._reported and name != ALL_CLIENTS
            self._reports += again
            new = self._reports > self._machines or self._further_machines > 0
        else:
            new = self._announced or (group in self._closed and key not in self._reported and name != ALL_CLIENTS)
        if new:
            self.begins.append(position if self._next is None else self._next)
            self._reported, self._closed, self._reports = set(), set(), 1
            self._machines, self._further_machines = self._further_machines, 0
        self._reported.add(key)
        self._next, self._announced = None, False
