# SPDX-License-Identifier: Apache-2.0
"""What virtune says of kept studies and recorded files, written down as files: a change of any sentence, figure or
picture is seen, and is either meant or a fault.

    python -m tests.golden.golden_cases     # write all of it down again; `git diff tests/golden` says what changed

Numbers are kept to six digits, so that another machine's rounding is no change.
"""

import contextlib
import gzip
import html
import io
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tests.live_samples import HEADER, UNPLUGGED, live
from tests.probe.machines import unpack

from virtune.analyse.study.host_rules import judge_host
from virtune.cli import run
from virtune.cli.common.result_output import ResultOutput
from virtune.cli.common.results import show_result, show_sweep, show_tuning
from virtune.flows.live.top import Recorder
from virtune.flows.run.sweep import finished_sweep
from virtune.flows.run.tune import finished_tuning
from virtune.flows.stored.show import current
from virtune.probe.host import host_facts
from virtune.report.pages.probe import render
from virtune.store.store import Store

HERE = Path(__file__).parent
SAID = HERE / "said"
STORE = HERE / "studies.sqlite.gz"
"""Small studies of every kind, measured on a busy machine so that there is much to warn of, and simulated ones; names
of the host and its paths are replaced. Their measurements are of method 0, so that what is said of them is derived
from their captures now."""

CAPTURES = HERE.parent / "captures"
EXAMPLES = HERE.parents[1] / "docs" / "guide" / "examples"
MOMENT = re.compile(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\+00:00)?)?")
NO_MARKDOWN = ("sweep",)
PICTURED = ("four-arms", "search", "sweep", "at-load", "in-guests")
"""Studies whose pictures are held by every value; the others are drawn by the same code."""

MACHINE = "MACHINE"
"""In place of a verb: the page of a probe of this recorded machine."""

TOUCHED = HERE / "touched.json"
"""By the name of a case, what its call does to its store and files: how it opens, writes, makes or removes them."""

SHORT = "SHORT"
"""In place of a verb: the end of the run that measured this study."""

MACHINES = ("lvm-on-raid", "small-vm", "two-sockets")

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
NAMED = ("sqlite3.connect", "os.mkdir", "os.remove", "os.rename", "os.rmdir")
_touched: list[set[str]] = []
"""Of the call that runs, if one does: Python takes no hook back."""

DIGITS = re.compile(r"(?<![\w.])-?\d+\.\d{4,}(e[+-]?\d+)?(?![\w.])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A call, and the file that holds what it says; `writes` is a file that it makes, which is held instead."""

    name: str
    words: tuple[str, ...]
    columns: int = 80
    writes: str | None = None
    code: int = 0


def studies() -> dict[str, str]:
    """Return the ids of the kept studies, by a short name."""
    return json.loads((HERE / "studies.json").read_text())  # type: ignore[no-any-return]


def cases() -> dict[str, tuple[Case, ...]]:
    """Return all calls, by the group that one test makes: STORE, DIR and RECORD stand for what is made for it."""
    found: dict[str, tuple[Case, ...]] = {}
    for name, study in studies().items():
        store = (study, "--store", "STORE")
        found[name] = (
            Case(name=f"{name}.short.txt", words=(SHORT, *store)),
            Case(name=f"{name}.txt", words=("show", *store)),
            Case(name=f"{name}.60.txt", words=("show", *store), columns=60),
            Case(name=f"{name}.160.txt", words=("show", *store), columns=160),
            Case(name=f"{name}.json", words=("show", *store, "--json")),
            Case(name=f"{name}.html.txt", words=("report", *store, "-o", "DIR/page.html"), writes="page.html"),
        )
        if name not in NO_MARKDOWN:
            found[name] += (Case(name=f"{name}.md", words=("show", *store, "--markdown", "-")),)
        if name in PICTURED:
            found[name] += (Case(name=f"{name}.pictures.json", words=("report", *store, "--spec")),)
    found["store"] = (
        Case(name="export.csv", words=("export", studies()["in-guests"], "--store", "STORE")),
        Case(name="list.txt", words=("list", "--store", "STORE")),
        Case(name="list.json", words=("list", "--store", "STORE", "--json")),
        Case(name="metrics.prom", words=("export", "--textfile", "DIR", "--store", "STORE"), writes="virtune.prom"),
    )
    found["layers"] = tuple(_layers())
    found["machines"] = tuple(Case(name=f"probe-{name}.txt", words=(MACHINE, name)) for name in MACHINES)
    found["files"] = (*_fio(), *_vms(), *_others())
    return found


def _layers() -> Iterator[Case]:
    """What limits the disk of kept trials, and what one trial left."""
    for name in ("four-arms", "in-guests"):
        store = (studies()[name], "--store", "STORE")
        yield Case(name=f"diagnose-{name}.txt", words=("diagnose", "--run", *store, "-v"))
        yield Case(name=f"diagnose-{name}.json", words=("diagnose", "--run", *store, "--json"))
        yield Case(name=f"trial-{name}.txt", words=("show", *store, "--trial", "3"))
    for name in ("four-arms", "search-simulated"):
        words = ("show", studies()[name], "--store", "STORE", "--report", "DIR/whole.txt")
        yield Case(name=f"whole-{name}.txt", words=words, writes="whole.txt")


def _fio() -> Iterator[Case]:
    for one in (
        "buffered.both",
        "fsync.both",
        "randrw-group.both",
        "study1-after.txt",
        "study2.txt",
        "sections.both",
    ):
        yield Case(name=f"explain-{one}.txt", words=("explain", str(CAPTURES / "fio" / one)))
    yield Case(name="explain-rate.json", words=("explain", str(CAPTURES / "fio" / "rate-unmet.both"), "--json"))
    before, after = str(EXAMPLES / "before"), str(EXAMPLES / "after")
    limit = ("--fail-if", "iops < -3%")
    yield Case(name="before-after.txt", words=("compare", before, after, *limit), code=4)
    yield Case(name="before-after.json", words=("compare", before, after, "--json"))
    yield Case(name="before-after.md", words=("compare", before, after, "--markdown", "-", *limit), code=4)
    junit = ("compare", before, after, *limit, "--junit", "DIR/j.xml")
    yield Case(name="before-after.junit.xml", words=junit, writes="j.xml", code=4)


def _vms() -> Iterator[Case]:
    paths = [*sorted((CAPTURES / "domains").glob("*.xml"))[::4], *sorted((CAPTURES / "proxmox").glob("*.conf"))[::2]]
    paths += [*sorted((CAPTURES / "kubevirt").iterdir()), *sorted((CAPTURES / "qemu").iterdir())]
    files = tuple(str(path) for path in paths)
    yield Case(name="audit.txt", words=("audit", *files), code=4)
    yield Case(name="audit.json", words=("audit", *files, "--json"), code=4)
    yield Case(name="audit.sarif", words=("audit", *files, "--sarif"), code=4)
    domains = tuple(str(path) for path in sorted((CAPTURES / "domains").glob("*.xml"))[1::4])
    running = str(CAPTURES / "domains" / "status-of-a-running-one.xml")
    yield Case(name="domains.txt", words=("probe", *domains, running))
    yield Case(name="domains.json", words=("probe", *domains, running, "--json"))
    flash = ("advise", "--template", "flash", str(CAPTURES / "domains" / "study3-flash.xml"))
    yield Case(name="advise-flash.txt", words=flash)
    turned = ("advise", "--set", "disk.cache@sata0=none", "--set", "disk.aio@sata0=native")
    yield Case(name="advise-pve.txt", words=(*turned, str(CAPTURES / "proxmox" / "windows-sata.conf")))


def _others() -> Iterator[Case]:
    yield Case(name="top.txt", words=("top", "--replay", "RECORD", "--once"), columns=120)
    yield Case(name="top.json", words=("top", "--replay", "RECORD", "--once", "--json"))
    yield Case(name="top.csv", words=("top", "--replay", "RECORD", "--csv"))
    yield Case(name="knob.txt", words=("knobs", "K45"))
    yield Case(name="knobs.json", words=("knobs", "disk", "--json"))
    yield Case(name="studies.txt", words=("study", "list"))


@contextlib.contextmanager
def place() -> Iterator[dict[str, str]]:
    """Yield what the words of the calls stand for, in a directory that is removed."""
    with tempfile.TemporaryDirectory() as directory:
        at = Path(directory)
        (at / "store.sqlite").write_bytes(gzip.decompress(STORE.read_bytes()))
        with Recorder(at / "record.jsonl", HEADER) as file:
            for second in range(1, UNPLUGGED + 3):
                file.add(live(second))
        yield {"STORE": str(at / "store.sqlite"), "RECORD": str(at / "record.jsonl"), "DIR": directory}


def _hook(event: str, values: tuple[object, ...]) -> None:
    if not _touched:
        return
    if event == "open" and isinstance(values[0], str) and isinstance(values[2], int) and values[2] & WRITES:
        _touched[-1].add(f"writes {values[0]}")
    elif event in NAMED:
        _touched[-1].add(f"{event} {values[0]}")


sys.addaudithook(_hook)


@contextlib.contextmanager
def touching(at: dict[str, str]) -> Iterator[list[str]]:
    """Yield a list that holds, after the block, what was done in it to the places of a call."""
    lines: list[str] = []
    _touched.append(set())
    try:
        yield lines
    finally:
        done = "\n".join(sorted(_touched.pop()))
        for name, path in at.items():
            done = done.replace(path, name)
        done = re.sub(r"(\.virtune[\w.]*)\.\w{8}\b", r"\1.RANDOM", done)
        lines += sorted({line for line in done.split("\n") if any(name in line for name in at)})


def said(case: Case, at: dict[str, str]) -> str:
    """Return what a call says, without what differs from machine to machine."""
    if case.words[0] == MACHINE:
        return _of_machine(case.words[1], case.columns)
    words = [at.get(word, word.replace("DIR/", at["DIR"] + "/")) for word in case.words]
    out, err = io.StringIO(), io.StringIO()
    with _columns(case.columns), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = _end_of_run(words[1], Path(at["STORE"])) if words[0] == SHORT else run(words)
    assert code == case.code, (case.name, code, err.getvalue()[-500:])
    text = out.getvalue() if case.writes is None else (Path(at["DIR"]) / case.writes).read_text()
    if case.name.endswith(".html.txt"):
        text = _words_of_page(text)
    for name in at.values():
        text = text.replace(name, "PLACE")
    text = text.replace(str(CAPTURES), "CAPTURES").replace(str(EXAMPLES), "EXAMPLES")
    if "STORE" not in case.words or case.writes == "virtune.prom":
        text = MOMENT.sub("MOMENT", text)  # what is read now is dated now
    text = re.sub(r"(?m)^(virtune_scrape_duration_seconds) .*", r"\1 TIME", text)
    return DIGITS.sub(lambda found: f"{float(found.group()):.6g}", text).rstrip() + "\n"


def _end_of_run(study: str, place: Path) -> int:
    with Store(place) as store:
        record, result = current(store, study)
        if record.study.search is not None:
            show_tuning(store, finished_tuning(store, study), ResultOutput(), brief=True)
        elif record.study.sweep is not None:
            show_sweep(store, finished_sweep(store, study), ResultOutput(), brief=True)
        else:
            show_result(result, record, ResultOutput(), brief=True)
    return 0


def _of_machine(name: str, columns: int) -> str:
    with tempfile.TemporaryDirectory() as directory:
        facts = host_facts("/var/lib/images", unpack(name, Path(directory)))
    out = io.StringIO()
    Console(file=out, width=columns, highlight=False).print(render(facts, judge_host(facts)))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


@contextlib.contextmanager
def _columns(width: int) -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(width)
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def _words_of_page(page: str) -> str:
    """The text of an HTML page, a line for each element that has some; a word for each picture."""
    body = re.sub(r"<(style|script)\b.*?</\1>", "", page, flags=re.DOTALL)
    lines = []
    for part in re.split(r"(<svg\b.*?</svg>)", body, flags=re.DOTALL):
        if part.startswith("<svg"):
            lines.append("[picture]")  # its values are held where its specification is; drawn, they depend on the run
        else:
            lines += [" ".join(line.split()) for line in html.unescape(re.sub(r"<[^>]+>", "\n", part)).split("\n")]
    return "\n".join(line for line in lines if line)


def write(names: Sequence[str]) -> None:
    """Write down what every call of these groups says now."""
    groups = {name: found for name, found in cases().items() if not names or name in names}
    if not names:
        shutil.rmtree(SAID, ignore_errors=True)
    SAID.mkdir(exist_ok=True)
    with place() as at:
        touched: dict[str, list[str]] = json.loads(TOUCHED.read_text()) if names else {}
        for found in groups.values():
            for case in found:
                with touching(at) as touched[case.name]:
                    text = said(case, at)
                (SAID / case.name).write_text(text)
        TOUCHED.write_text(json.dumps(touched, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write(sys.argv[1:])
