# SPDX-License-Identifier: Apache-2.0
"""Several VMs changed by one call on a real libvirtd: the first goes ahead, what fails ends it, all undone as one."""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.conftest import User
from tests.libvirt.tiny import UP, boot_tiny, ups
from tests.libvirtd import Libvirtd

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("libvirt")]
Boot = Callable[..., str]

NONE = ("--set", "disk.cache@vda=none", "--yes")
BACK = ("--restart", "--healthy", f"console:^{UP}$", "--timeout", "5")
QUICK = ("--rig", "storage-daemon", "--rounds", "12", "--seconds", "100ms", "--ramp", "0", "--attempts", "1")


@pytest.fixture
def boot(daemon: Libvirtd) -> Iterator[Boot]:
    """Boots tiny guests; all of them are gone afterwards."""
    yield partial(boot_tiny, daemon)
    daemon.forget()


def test_all_are_changed_by_one_call_and_undone_by_one_name(
    user: User, daemon: Libvirtd, make: Callable[..., str]
) -> None:
    names = [make(f"web{number}") for number in range(3)]
    make("done", "cache='none'")
    before = {name: daemon.xml(name) for name in names}
    with_uri = ("--connect", daemon.uri)
    asked = user.run("apply", *names, "done", *with_uri, *NONE[:-1], status=2)
    assert "stdin is not a terminal" in asked.stderr
    dry = user.run("apply", *names, *with_uri, *NONE, "--dry-run").stdout
    assert dry.count("disk.cache@vda = none") == 3
    gone = user.run("apply", *names, "nobody", *with_uri, *NONE, status=None)
    assert gone.status, "one that is not there is noticed before any is changed"
    assert {name: daemon.xml(name) for name in names} == before
    ran = user.run("apply", *names, "web0", "done", *with_uri, *NONE)
    (group,) = re.findall(r"3 VMs are changed; `virtune apply undo (all-[0-9a-f]{6})` puts them back", ran.stdout)
    assert all("cache='none'" in daemon.xml(name) for name in names)
    assert user.run("apply", "undo", "--list").stdout.count(group) == 3
    user.run("apply", "undo", "web1")
    assert daemon.xml("web1") == before["web1"]
    assert user.run("apply", "undo", "last").stdout.count("is as it was before") == 2
    assert {name: daemon.xml(name) for name in names} == before
    assert user.run("apply", "undo", group).stdout.count("was put back before; nothing to do") == 3


def test_what_fails_leaves_the_others_alone(user: User, daemon: Libvirtd, boot: Boot) -> None:
    boot("first"), boot("deaf", obeys=False), boot("last")
    names = ("first", "deaf", "last")
    before = {name: daemon.xml(name) for name in names}
    called = ("apply", "--connect", daemon.uri, *NONE, *BACK)
    ran = user.run(*called, *names, status=1)
    (group,) = re.findall(r"first stay changed: `virtune apply undo (all-[0-9a-f]{6})`", ran.stderr)
    assert "not touched: last" in ran.stderr
    assert "cache='none'" in daemon.xml("first", live=True)
    assert [daemon.xml(name) == before[name] for name in names] == [False, True, True]
    assert [ups(daemon, name) for name in names] == [2, 1, 1]
    user.run("apply", "undo", group, "--restart")
    assert {name: daemon.xml(name) for name in names} == before
    assert "cache='none'" not in daemon.xml("first", live=True)


@pytest.mark.long(always="test_fix.py measures a changed VM again in each run")
def test_the_first_is_measured_against_what_it_was(user: User, daemon: Libvirtd, make: Callable[..., str]) -> None:
    slow = "<iotune><total_iops_sec>400</total_iops_sec></iotune>"
    names = [make(f"slow{number}") for number in range(2)]
    for name in names:
        daemon.define(daemon.xml(name).replace("</disk>", f"{slow}</disk>", 1))
    before = {name: daemon.xml(name) for name in names}
    with_uri = ("--connect", daemon.uri)
    arms = ("--arm", "faster:disk.throttle_iops=4000", "--arm", "slower:disk.throttle_iops=100")
    user.run("compare", "--like", "slow0:vda", *with_uri, *arms, *QUICK)
    called = ("apply", *names, *with_uri, "--yes", "--verify")
    assert "--verify belongs to --from" in user.run(*called, "--template", "flash", status=2).stderr
    study = user.run("show", "list", "--json").stdout
    (study,) = (one["id"] for one in json.loads(study)["studies"])
    ran = user.run(*called, "--from", f"{study}:slower", status=4)
    assert "measured again: vda is worse than it was" in ran.stdout
    assert "not touched: slow1" in ran.stdout
    assert {name: daemon.xml(name) for name in names} == before
    ran = user.run(*called, "--from", f"{study}:faster")
    assert "measured again: vda is better than it was" in ran.stdout
    assert all("<total_iops_sec>4000<" in daemon.xml(name) for name in names)
    user.run("apply", "undo", "last")
    assert {name: daemon.xml(name) for name in names} == before
