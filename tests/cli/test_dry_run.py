# SPDX-License-Identifier: Apache-2.0
"""--dry-run: everything is checked, what would be done is said, and nothing is done."""

from pathlib import Path

import pytest
from tests.conftest import User

pytestmark = pytest.mark.real

CALLS = {
    "compare": ("compare", "--vary", "disk.aio=threads,io_uring"),
    "measure": ("compare", "measure", "--rig", "metal", "--workload", "randwrite-4k"),
    "study": ("compare", "study", "run", "io-engine", "--rig", "storage-daemon"),
    "sweep": ("sweep", "--rig", "vhost-user"),
    "tune": ("tune", "--rig", "vhost-user"),
    "check": ("host", "check"),
}


@pytest.mark.parametrize("verb", sorted(CALLS))
def test_what_would_be_measured_is_said_and_nothing_is(user: User, verb: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in user.scratch.rglob("*")}  # of other tests
    ran = user.run(*CALLS[verb], "--dry-run")
    assert ran.stdout.endswith("nothing was measured (--dry-run)\n")
    assert "load " in ran.stdout
    assert not user.store.exists()
    assert {path: path.stat().st_mtime_ns for path in user.scratch.rglob("*")} == before


def test_what_cannot_be_verified_is_said_before_it_is_measured(user: User) -> None:
    """It was said after 90 s, to somebody who wanted to know which cache mode to take."""
    words = (
        "compare",
        "--vary",
        "disk.cache=none,writethrough",
        "--rounds",
        "1",
        "--seconds",
        "50ms",
        "--span",
        "16M",
    )
    dry = " ".join(user.run(*words, "--dry-run").stdout.split())
    assert "warning: disk.cache of cache=writethrough cannot be verified on rig=storage-daemon" in dry
    progress = user.run(*words).stderr
    assert 0 < progress.index("cannot be verified on rig=storage-daemon") < progress.index("round 1 of")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--arm", "a:load.pin=0", "--arm", "b:load.pin=0-9999"),
            "arm 'b' cannot be here: load.pin=0-9999 names a CPU",
        ),
        (
            ("--rig", "qemu", "--arm", "a:", "--arm", "b:device.iothread=io1,iothread.pin=9999"),
            "iothread.pin=9999 names a CPU",
        ),
        (("measure", "--span", "900T"), "free: the scratch image needs 900 TiB"),
        (("measure", "--scratch", "/proc/x"), "/proc/x has 0 B free"),
    ],
)
def test_what_this_host_cannot_do_is_said_before_a_trial(user: User, words: tuple[str, ...], said: str) -> None:
    ran = user.run(
        "compare", *words, *(() if "qemu" in words else ("--rig", "metal")), "--dry-run", exactly=True, status=3
    )
    assert said in ran.stderr


def test_what_would_be_refused_is_refused(user: User, tmp_path: Path) -> None:
    image = tmp_path / "theirs.raw"
    image.write_bytes(bytes(2**24))
    words = ("compare", "measure", "--rig", "metal", "--workload", "randwrite-4k", "--dry-run")
    ran = user.run(*words, "--target", str(image), "--span", "8M", exactly=True, status=3)
    assert "which virtune did not create" in ran.stderr
    ran = user.run(*words, "--target", str(image), "--span", "8M", "--allow-write-to", str(image), exactly=True)
    assert f"on {image}, which is written to" in ran.stdout
    assert image.read_bytes() == bytes(2**24)
    assert "is for what is measured now" in user.run("compare", "a", "b", "--dry-run", exactly=True, status=2).stderr
