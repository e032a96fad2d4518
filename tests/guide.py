# SPDX-License-Identifier: Apache-2.0
"""Every command that a page, a help text or a hint shows, as its reader would type it, with the output that is shown.

What stands for something of the reader's (a VM, a file, a host) is in one table, `STAND_INS`.
"""

import ast
import functools
import itertools
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from virtune.cli import VERBS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "virtune"
GUIDE = ROOT / "docs" / "guide"
EXAMPLES = GUIDE / "examples"
PAGES = [ROOT / "README.md", ROOT / "docs" / "ci.md", *sorted(GUIDE.glob("*.md"))]
EVERY_PAGE = sorted(
    {*ROOT.glob("*.md"), *(page for at in ("docs", "loadgen", "benchmarks") for page in (ROOT / at).rglob("*.md"))}
)
"""The help of every command is on one of them (docs/reference/cli.md)."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_STATUS = re.compile(r"exit (\d)")
ELISION = "..."

_LINE = re.compile(r"^(?: {4}|\$ )(?:.*\| |[A-Z_]+=\S+ )?virtune (?P<words>.+)$", re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`virtune (?P<words>[^`]+)`")
_OF_THE_SHELL = frozenset({"|", "||", "&&", ">", ">>", "<", "2>"})

STAND_INS: Mapping[str, str] = {
    # files and disks of the reader's, which `tests/cli/test_guide.py` lays out in a folder
    "FILE": "result.json", "FILE.zip": "new.zip", "FILE.html": "new.html", "--parquet FILE": "--parquet new.parquet",
    "FOLDER": "before", "DIR": "PLACE", "BEFORE": "before", "AFTER": "after",
    "FILE:1 FILE:2": "article.txt:1 article.txt:2",
    "before-*.json": "before.json", "after-*.json": "after.json", "DIR/HOST.sqlite": "kvm1.sqlite",
    "/dev/NAME": "PLACE/disk", "DEV": "PLACE/disk", "/dev/zvol/NAME": "PLACE/disk", "/dev/nvme0n1": "PLACE/disk",
    "/dev/nvme1n1": "PLACE/disk", "/etc/libvirt/qemu": "domains", "/etc/pve/qemu-server": "proxmox",
    "/etc/pve/qemu-server/101.conf": "proxmox/101.conf", "/var/lib/prometheus/node-exporter": "PLACE",
    "/var/lib/libvirt/images": "PLACE", "lvm:pve/data": "PLACE",
    # programs
    "PATH": "/usr/bin/qemu-system-x86_64", "/opt/qemu/bin/qemu-system-x86_64": "/usr/bin/qemu-system-x86_64",
    # what is stored, and what is in it
    "STUDY": "last", "STUDY:ARM STUDY:ARM": "last:threads last:io_uring", "TRIAL": "1", "N": "1", "20261122": "last",
    "{{ pair.sides[0].id }} {{ pair.sides[1].id }}": "last:threads last:io_uring", "{trial}": "1",
    "--trial 7": "--trial 1", "last:3": "last:1", "@good last": "@good:threads last:io_uring",
    # words of the command line
    "VERB": "show", "COMMAND": "show", "{args[0]}": "show", "{now}": "show",
    "{EARLIER.get(close[0], close[0])}": "show", "KNOB@DISK=VALUE FILE": "disk.aio@vda=io_uring vm.xml",
    "KNOB=VALUE": "disk.aio=native", "CPUS FILE": "0 vm.xml", "knobs NAME": "knobs disk.aio",
    "{knob.id}": "disk.aio",
    "study run NAME": "study run io-engine", "study plan NAME": "study plan io-engine",
    "--capture NAME": "--capture fio.json", "NAME": "last",
    # VMs and hosts
    "DOMAIN": "web1", "DISK": "vda", "URI": "test:///default", "HOST": "kvm1", "POOL": "pool",
}  # fmt: skip
"""What is typed in the place of something of the reader's own."""

_PLACEHOLDER = re.compile(
    "|".join(rf"(?<![\w/]){re.escape(word)}(?![\w/.]\w)(?!\w)" for word in sorted(STAND_INS, key=len, reverse=True))
)


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
        """Whether it takes minutes, or needs a VM with a load of its own, a second QEMU, LVM or other hosts."""
        return self.page in ("recipes.md", "ci.md") or self.remark in (
            "a running VM",
            "needs both",
            "needs LVM",
            "over SSH",
        )


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


@functools.cache
def documented() -> tuple[Step, ...]:
    """Return each command of all pages and of the texts in the source, with stand-ins for the reader's own."""
    texts = [(page, page.read_text().replace("\\|", "|")) for page in EVERY_PAGE]
    for file in sorted(SOURCE.rglob("*")):
        if file.suffix == ".py" and "virtune" in (source := file.read_text()):
            texts += [(file, text) for text in strings(ast.parse(source)) if "virtune " in text]
        elif file.suffix in (".html", ".toml"):
            texts.append((file, file.read_text()))
    found: dict[tuple[str, ...], Step] = {}
    for file, text in texts:
        for words in commands(text):
            found.setdefault(words, Step(str(file.relative_to(ROOT)), words))
    return tuple(found.values())


def commands(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command that stands in a line of its own, or between backticks; of one for a fleet also
    those that its hosts are given.
    """
    blocks = (block for language, block in _FENCE.findall(text) if language == "sh")
    alone = "".join(f"    {line}\n" for block in blocks for line in block.splitlines())
    for found in (*_LINE.finditer(alone), *_LINE.finditer(text), *_INLINE.finditer(text)):
        words = typed(" ".join(found["words"].split()))
        yield words
        if words[:2] == ("fleet", "run"):
            yield from (words[at:] for at, word in enumerate(words) if at > 1 and word in MEASURING)


MEASURING = frozenset({"check", "compare", "measure", "study", "sweep", "tune"})
"""Verbs that measure, or may."""


def verb_of(words: tuple[str, ...]) -> str:
    """Return the verb of a command, without the one that it is listed with."""
    return words[1] if " ".join(words[:2]) in VERBS and len(words) > 1 else words[0]


def typed(line: str) -> tuple[str, ...]:
    """Return the words of a command as virtune is given them."""
    line = line.partition(" # ")[0]
    line = re.sub(r"([A-Z]+)\|[A-Z]+", r"\1", line)  # FILE|FOLDER: the first
    line = re.sub(r"\[(:?[A-Z]+)\]", r"\1", line)  # DOMAIN[:DISK]: with it
    line = _PLACEHOLDER.sub(lambda word: STAND_INS[word[0]], line)
    words = shlex.split(re.sub(r"\{[^}]*\}+", "last", line))  # what else is filled in is a name of something stored
    return tuple(itertools.takewhile(lambda word: word not in _OF_THE_SHELL, words))


def strings(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a source, with `{expression}` where a value is filled in."""
    if isinstance(tree, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
            for part in tree.values
            if isinstance(part, ast.Constant | ast.FormattedValue)
        )
    elif isinstance(tree, ast.Constant):
        if isinstance(tree.value, str):
            yield tree.value
    else:
        for below in ast.iter_child_nodes(tree):
            yield from strings(below)


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
