# SPDX-License-Identifier: Apache-2.0
"""The commands of the README and the guide, as their reader would type them, with the output that they show."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "guide"
EXAMPLES = GUIDE / "examples"
PAGES = [ROOT / "README.md", ROOT / "docs" / "ci.md", *sorted(GUIDE.glob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_STATUS = re.compile(r"exit (\d)")
ELISION = "..."


@dataclass(frozen=True)
class Step:
    """One command: its words after `virtune`, its remark, and the lines that the page shows of its output."""

    page: str
    words: tuple[str, ...]
    remark: str = ""
    shown: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        found = _STATUS.search(self.remark)
        return int(found[1]) if found else 0

    @property
    def needs_libvirt(self) -> bool:
        return "qemu:///system" in self.words and not self.only_parsed

    @property
    def only_parsed(self) -> bool:
        """Whether it takes minutes, or needs a VM with a load of its own, a second QEMU or other hosts."""
        return self.page in ("recipes.md", "ci.md") or self.remark in ("a running VM", "needs both", "over SSH")


def steps(page: Path) -> Iterator[Step]:
    """Yield the commands of `sh` blocks, and those of `console` blocks with what is shown of their output."""
    for language, text in _FENCE.findall(page.read_text()):
        if language == "sh":
            for line in text.splitlines():
                if line.startswith("virtune "):  # the README has others too, such as `make demo`
                    yield _step(page, line, ())
        elif language == "console":
            for one in text.split("$ ")[1:]:
                line, *shown = one.splitlines()
                yield _step(page, line, tuple(shown))


def missing(shown: tuple[str, ...], printed: str) -> str | None:
    """Return the first shown line that the output does not have in its place; `...` stands for any lines."""
    lines, place = [line.rstrip() for line in printed.splitlines()], 0
    anywhere = True
    for line in shown:
        if line == ELISION:
            anywhere = True
            continue
        try:
            found = lines.index(line.rstrip(), place)
        except ValueError:
            return line
        if not anywhere and found != place:
            return line
        place, anywhere = found + 1, False
    return None


def _step(page: Path, line: str, shown: tuple[str, ...]) -> Step:
    command, _, remark = line.partition("    # ")
    program, *words = shlex.split(command)
    assert program == "virtune", f"{page.name}: {line}"
    return Step(page.name, tuple(words), remark.strip(), shown)
