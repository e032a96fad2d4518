# SPDX-License-Identifier: Apache-2.0
"""Which QEMU is asked for the values of a search: each one that will run a configuration, and no other."""

import sys
from pathlib import Path

import pytest

from virtune.flows.run.tune import tuning_study
from virtune.model.reason import Reason
from virtune.model.search import Search
from virtune.model.study_options import StudyOptions

QEMU = """\
#!{python} -IS
import json, sys
(pipe,) = (word.partition("path=")[2].partition(",")[0] for word in sys.argv if word.startswith("pipe,"))
with open("{asked}", "a") as file:
    file.write(sys.argv[0] + chr(10))
SCHEMA = [
    {{"name": "blockdev-add", "meta-type": "command", "arg-type": "1"}},
    {{"name": "1", "meta-type": "object", "members": [], "variants": [{{"case": "file", "type": "2"}}]}},
    {{"name": "2", "meta-type": "object", "members": [{{"name": "aio", "type": "3"}}]}},
    {{"name": "3", "meta-type": "enum", "values": {values}}},
]
said = [{{"QMP": {{"version": {{"qemu": {{"major": 11, "minor": 2, "micro": 3}}}}}}}}]
for line in open(pipe + ".in"):
    asked = json.loads(line)
    known = asked["execute"] == "query-qmp-schema"
    said.append({{"id": asked.get("id"), **({{"return": SCHEMA}} if known else {{"error": {{"desc": "unknown"}}}})}})
open(pipe + ".out", "w").write(chr(10).join(map(json.dumps, said)))
"""


def qemu(path: Path, *values: str) -> Path:
    """A program that answers as a QEMU does that was built with these engines and without any device."""
    path.write_text(QEMU.format(python=sys.executable, asked=path.parent / "asked", values=list(values)))
    path.chmod(0o755)
    return path


def search(tmp_path: Path, **more: tuple[str, ...] | str) -> Search:
    study, _ = tuning_study(StudyOptions(span=2**26, scratch=tmp_path, **more))  # type: ignore[arg-type]
    assert study.search is not None
    return study.search


def removed(found: Search) -> dict[str, str]:
    return {one.what: one.why for one in found.removed if one.reason is Reason.NOT_SUPPORTED}


def test_the_emulator_that_will_run_says_which_values_there_are(tmp_path: Path) -> None:
    program = qemu(tmp_path / "qemu-other", "threads", "native")
    engines = ("disk.aio=threads,native,io_uring",)
    found = search(tmp_path, rig="qemu", fix=(f"machine.emulator={program}",), vary=engines)
    assert removed(found) == {"disk.aio=io_uring": "qemu-other 11.2.3 was built without it"}
    assert (tmp_path / "asked").read_text().split() == [str(program)]


def test_each_emulator_of_a_search_says_which_values_there_are(tmp_path: Path) -> None:
    """A value counts only where every QEMU that is compared has it."""
    new, old = qemu(tmp_path / "qemu-new", "threads", "native"), qemu(tmp_path / "qemu-old", "threads")
    both = (f"machine.emulator={new},{old}", "disk.aio=threads,native")
    found = search(tmp_path, rig="qemu", vary=both, baseline=f"machine.emulator={new}")
    assert removed(found) == {"disk.aio=native": "qemu-old 11.2.3 was built without it"}
    assert (tmp_path / "asked").read_text().split() == [str(new), str(old)]


def test_the_storage_daemon_is_asked_where_it_runs_the_configurations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu(tmp_path / "qemu-storage-daemon", "threads", "native")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = search(tmp_path, vary=("disk.aio=threads,native,io_uring",))
    assert removed(found) == {"disk.aio=io_uring": "qemu-storage-daemon 11.2.3 was built without it"}
    assert (tmp_path / "asked").read_text().split() == [str(tmp_path / "qemu-storage-daemon")]
