# SPDX-License-Identifier: Apache-2.0
"""What people's logs, mails and terminals put before each line of a text that they paste."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html import escape

_BEGIN = datetime(2024, 9, 30, 23, 59, 57, 998_000, UTC)


def _time(number: int) -> datetime:
    return _BEGIN + timedelta(milliseconds=311 * number)


PREFIXES: dict[str, Callable[[int], str]] = {
    "quoted": lambda _: "> ",
    "quoted twice": lambda _: "> > ",
    "of an answer": lambda _: ">> ",
    "of a diff": lambda _: "+ ",
    "tab": lambda _: "\t",
    "blanks": lambda _: "        ",
    "numbers": lambda number: f"{number}: ",
    "numbers in a column": lambda number: f"{number:>6}\t",
    "clock": lambda number: f"[{_time(number):%H:%M:%S}] ",
    "clock of a CI": lambda number: f"{_time(number):%H:%M:%S.%f} "[:12] + " ",
    "ISO": lambda number: f"{_time(number):%Y-%m-%dT%H:%M:%S}.{number % 10**7:07}Z ",
    "logging": lambda number: f"{_time(number):%Y-%m-%d %H:%M:%S},{number % 1000:03} INFO ",
    "syslog": lambda number: f"{_time(number):%b %e %H:%M:%S} host-7 fio[{4711}]: ",
    "compose": lambda _: "fio-1  | ",
    "pod": lambda _: "[pod/fio-x7f/fio] ",
    "kernel": lambda number: f"[{number / 7:>12.6f}] ",
    "colour": lambda number: "\x1b[32m" if number % 2 else "\x1b[0;1m",
    "word": lambda _: "stdout: ",
}  # fmt: skip

WRAPS: dict[str, Callable[[str], str]] = {
    "list of strings": lambda text: "\n".join(f'        "{line}",' for line in text.split("\n")),
    "HTML": lambda text: escape(text, quote=False),
    "blanks of a page": lambda text: text.replace("  ", "\xa0 "),
    "indented": lambda text: "\n".join(f"    {line}" for line in text.split("\n")),
    "fence": lambda text: f"```\n{text}```\n",
}
"""What a page, a playbook or a mail makes of a text."""


def pasted(text: str, befores: list[Callable[[int], str]], end: str) -> str:
    lines = text.replace("\r\n", "\n").split("\n")
    return end.join("".join(one(number) for one in befores) + line for number, line in enumerate(lines, 1))
