# SPDX-License-Identifier: Apache-2.0
"""What a load program leaves is read up to a limit, whatever program it is: these are shell scripts."""

import resource
from pathlib import Path

import pytest
from tests.bench.loading import Kept, raw_job

from virtune.bench.load import fio_engines
from virtune.bench.metal import MetalBench
from virtune.bench.port import LoadOutput, Window
from virtune.model.errors import LoadError
from virtune.model.stack import NbdTarget, Stack
from virtune.shell import Warden

AT_ONCE = Window(seconds=0.0, ramp_seconds=0.0)


def program(directory: Path, script: str) -> str:
    """A program named fio that does what a script says, with `$out` for the file that it is to write."""
    path = directory / "fio"
    path.write_text(
        f"#!/bin/sh\nfor word; do case $word in --output=*) out=${{word#--output=}};; esac; done\n{script}\n"
    )
    path.chmod(0o755)
    return str(path)


def load(script: str, directory: Path, warden: Warden) -> LoadOutput:
    job = raw_job("[job]\n", engine="nbd", program=program(directory, script))
    nothing = NbdTarget(socket="", export="", size_bytes=1)
    bench = MetalBench(target=nothing, image=None, stack=Stack(), warden=warden)
    return bench.run([job], AT_ONCE, Kept())


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_what_a_load_wrote_is_returned(tmp_path: Path, warden: Warden) -> None:
    assert load('printf "{}" > $out', tmp_path, warden).output == b"{}"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("ln -sf /dev/zero $out", "fio left no output"),
        ("ln -sf /etc/passwd $out", "fio left no output"),
        ("mkfifo $out", "fio left no output"),
        ("truncate -s 1T $out", "fio's output is larger than 64 MiB"),
        ("true", "fio left no output"),
        ('printf "{}" > $out; ln -s /dev/zero ${out%/*}/load_iops.1.log', "a log of fio cannot be read"),
        ("ln -sf /dev/zero $out; exit 1", "fio ended early: exit 1"),
        ("truncate -s 1T $out; exit 1", "fio ended early: exit 1"),
        ("yes > ${out%/*}/load.log & sleep 0.2; kill $!; kill -9 $$", "fio ended early: killed by SIGKILL"),
    ],
)
def test_what_is_no_result_is_one_sentence_and_little_memory(
    script: str, says: str, tmp_path: Path, warden: Warden
) -> None:
    before = peak_bytes()
    with pytest.raises(LoadError, match=says):
        load(script, tmp_path, warden)
    assert peak_bytes() - before < 200 * 1024**2


def test_a_log_without_end_is_cut(tmp_path: Path, warden: Warden) -> None:
    log = load('printf "{}" > $out; truncate -s 1T ${out%/*}/load_iops.1.log', tmp_path, warden).log
    assert len(log) == 64 * 1024**2


@pytest.mark.parametrize(("script", "says"), [("yes", "more than 64 MiB"), ("exit 3", "exit 3")])
def test_a_fio_that_does_not_list_its_engines_is_named(script: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=f"fio does not say which engines it has: {says}") as caught:
        fio_engines(program(tmp_path, script))
    assert "--enghelp` must list its engines" in (caught.value.hint or "")
