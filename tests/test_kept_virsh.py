# SPDX-License-Identifier: Apache-2.0
"""One virsh that is kept answers as one that is started for each question, on libvirt's own test driver."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import eventually
from virtune.model.errors import PreconditionError
from virtune.virsh import KeptVirsh, LibvirtRefused, Virsh

pytestmark = pytest.mark.real

URI = "test:///default"
QUESTIONS = (("list", "--uuid", "--state-running"), ("domstats", "--state", "--list-running"), ("nodeinfo",))


def children() -> set[int]:
    """The processes of virsh that this one has started."""
    found = set()
    for thread in Path("/proc/self/task").iterdir():
        for pid in (thread / "children").read_text().split():
            with contextlib.suppress(OSError):  # it ended just now
                if b"virsh" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.add(int(pid))
    return found


def test_it_answers_alike_and_is_started_once() -> None:
    with KeptVirsh(URI) as kept:
        for question in QUESTIONS:
            for _ in range(3):
                assert kept.run(*question).split() == Virsh(URI).run(*question).split() != []
        assert len(children()) == 1
    assert eventually(lambda: not children(), seconds=60)


def test_an_error_is_said_in_libvirt_s_words_and_the_next_answer_is_right() -> None:
    with KeptVirsh(URI) as kept:
        with pytest.raises(LibvirtRefused, match="failed to get domain"):
            kept.run("domstats", "nosuch")
        assert "Domain: 'test'" in kept.run("domstats", "--list-running")
        (pid,) = children()
        os.kill(pid, signal.SIGKILL)
        assert "Domain: 'test'" in kept.run("domstats", "--list-running"), "one that was killed is started again"


def test_a_libvirt_that_is_not_there_is_told() -> None:
    with KeptVirsh("qemu:///system?socket=/nowhere/sock") as kept, pytest.raises(PreconditionError, match="cannot"):
        kept.run("list")


def test_words_that_its_shell_would_read_otherwise_do_not_reach_it() -> None:
    with KeptVirsh(URI) as kept:
        with pytest.raises(LibvirtRefused, match="failed to get domain"):
            kept.run("domstats", "no such; echo 'x")
        assert not children()


KILLED = """
import os
from virtune.virsh import KeptVirsh
with KeptVirsh("test:///default") as kept:
    kept.run("list", "--uuid")
    print(open(f"/proc/self/task/{os.getpid()}/children").read(), flush=True)
    os._exit(0)  # as by SIGKILL: only its end of the terminal is closed
"""


def test_the_history_of_its_user_stays_as_it_was(tmp_path: Path) -> None:
    """virsh writes it when its terminal is gone, at most 500 lines: `top` would have put its own in their place."""
    history = tmp_path / "libvirt" / "virsh" / "history"
    history.parent.mkdir(parents=True)
    history.write_text("list --all\n")
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", KILLED], env=env, capture_output=True, check=True, timeout=60)
    (pid,) = ran.stdout.split()

    def gone() -> bool:
        with contextlib.suppress(OSError):
            return not Path(f"/proc/{int(pid)}/cmdline").read_bytes()  # of a zombie nothing is left
        return True

    assert eventually(gone, seconds=60)
    assert history.read_text() == "list --all\n"
