# SPDX-License-Identifier: Apache-2.0
"""`virtune fix` on a real libvirtd: audited, measured beside the VM, asked, applied to the running VM, and undone."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.conftest import User
from tests.libvirt.tiny import UP, boot_tiny, start, ups
from tests.libvirtd import Libvirtd

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("libvirt")]
Boot = Callable[..., str]

QUICK = ("--rig", "storage-daemon", "--rounds", "6", "--seconds", "100ms", "--ramp", "0", "--span", "64M")
BACK = ("--restart", "--healthy", f"console:^{UP}$", "--timeout", "20")


@pytest.fixture
def boot(daemon: Libvirtd) -> Iterator[Boot]:
    """Boots tiny guests; all of them are gone afterwards."""
    yield partial(boot_tiny, daemon)
    daemon.forget()


def test_a_bad_vm_is_fixed_step_by_step_and_put_back_byte_for_byte(user: User, daemon: Libvirtd, boot: Boot) -> None:
    boot("web")
    daemon.virsh("destroy", "web")
    daemon.define(daemon.xml("web").replace("cache='writeback'", "cache='unsafe'"))
    start(daemon, "web")
    before = daemon.xml("web")
    called = ("fix", "web:vda", "--connect", daemon.uri, *QUICK, "--attempts", "1")
    asked = user.run(*called, status=2)
    assert "error   R01  cache=unsafe" in asked.stdout
    assert "measured as fixes: disk.cache=none" in asked.stdout
    assert "R30 (no IOThread): nothing that it changes is seen on rig=storage-daemon" in asked.stdout
    assert "every arm begins with the settings of web:vda" in asked.stderr
    assert "disk.cache@vda = none" in asked.stdout
    assert "stdin is not a terminal" in asked.stderr
    assert daemon.xml("web") == before
    dry = user.run(*called, "--dry-run")
    assert "measured before: " in dry.stderr
    assert daemon.xml("web") == before
    other = user.run(*called, "--dry-run", "--workload", "randwrite-4k")
    assert "measured before: " not in other.stderr, "another load is another question"
    done = user.run(*called, "--yes", *BACK)
    assert "measured before: " in done.stderr
    assert "it was powered off and on, is healthy, and runs with all of it" in done.stdout
    assert "cache='none'" in daemon.xml("web", live=True)
    assert ups(daemon, "web") == 3
    user.run("apply", "undo", "last")
    assert daemon.xml("web") == before


def test_a_vm_in_which_nothing_is_wrong_is_left_alone(user: User, daemon: Libvirtd, make: Callable[..., str]) -> None:
    make("good", "cache='none' io='io_uring' discard='unmap' iothread='1'", rest="<iothreads>1</iothreads>")
    before = daemon.xml("good")
    ran = user.run("fix", "good", "--connect", daemon.uri, "--yes", *QUICK)
    assert "nothing to change" in ran.stdout
    assert daemon.xml("good") == before
