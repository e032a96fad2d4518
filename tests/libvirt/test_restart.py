# SPDX-License-Identifier: Apache-2.0
"""Changes that need a power cycle, on a real libvirtd with a guest that boots: it comes back, or it is put back."""

import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest
from tests.conftest import User
from tests.libvirt.dying import killed_at
from tests.libvirt.tiny import UP, boot_sector, boot_tiny, ups, wait_for
from tests.libvirtd import Libvirtd

from virtune.apply.journal import Journal, Restart
from virtune.flows.domains.apply import Back, Means, undo
from virtune.virsh import Virsh

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("libvirt")]
Boot = Callable[..., str]

SIGN = f"console:^{UP}$"
BACK = ("--restart", "--healthy", SIGN, "--timeout", "20")
"""A boot takes a second; on a busy host it may take ten."""

SOON = (*BACK[:-1], "10")
"""For guests that wait until this is over."""


@pytest.fixture
def boot(daemon: Libvirtd) -> Iterator[Boot]:
    """Boots tiny guests; all of them are gone afterwards."""
    yield partial(boot_tiny, daemon)
    daemon.forget()


def test_it_comes_back_with_all_changes_active(user: User, daemon: Libvirtd, boot: Boot) -> None:
    boot("web")
    before, pid = daemon.xml("web"), daemon.qemu("web")
    words = ("--set", "disk.cache@vda=none", "--set", "disk.aio@vda=io_uring", "--yes")
    ran = user.run("apply", "web", "--connect", daemon.uri, *words, *BACK)
    assert "it was powered off and on, is healthy, and runs with all of it" in ran.stdout
    assert daemon.qemu("web") != pid
    assert "cache='none' io='io_uring'" in daemon.xml("web", live=True)
    assert ups(daemon, "web") == 2
    ran = user.run("apply", "undo", "last")
    assert "it runs as changed until it is powered off and on" in ran.stdout
    assert daemon.xml("web") == before


def test_one_that_does_not_come_back_is_put_back_and_runs_as_it_did(user: User, daemon: Libvirtd, boot: Boot) -> None:
    boot("ide")  # it has no driver for the bus that it is to get
    before = daemon.xml("ide")
    words = ("--set", "device.bus@vda=ahci", "--yes", "--force-off")
    ran = user.run("apply", "ide", "--connect", daemon.uri, *words, *SOON, status=1)
    assert f"did not come back within 10 s: its console never showed '^{UP}$'" in ran.stderr
    assert "hint: ide is as it was before; it was started as it was before, and is well" in ran.stderr
    assert daemon.xml("ide") == before
    assert "bus='virtio'" in daemon.xml("ide", live=True)
    assert (daemon.virsh("domstate", "ide").strip(), ups(daemon, "ide")) == ("running", 2)
    assert "undone" in user.run("apply", "undo", "--list").stdout


def test_no_plug_is_pulled_without_leave(user: User, daemon: Libvirtd, boot: Boot) -> None:
    boot("deaf", obeys=False)
    before, pid = daemon.xml("deaf"), daemon.qemu("deaf")
    words = (
        "apply",
        "deaf",
        "--connect",
        daemon.uri,
        "--set",
        "disk.cache@vda=none",
        "--yes",
        *BACK[:3],
        "--timeout",
    )
    ran = user.run(*words, "1", status=1)
    assert "the guest did not shut down within 1 s" in ran.stderr
    assert "still runs, as it did; it may still obey" in ran.stderr
    assert (daemon.xml("deaf"), daemon.qemu("deaf")) == (before, pid)
    ran = user.run(*words, "10", "--force-off")
    assert "is healthy, and runs with all of it" in ran.stdout
    assert daemon.qemu("deaf") != pid
    # and on the way back: the configuration is put back at once, the guest only by leave
    ran = user.run("apply", "undo", "last", "--restart", status=1)
    assert "deaf has its old configuration for the next start, and still runs with the new one" in ran.stderr
    assert daemon.xml("deaf") == before
    ran = user.run("apply", "undo", "last", "--restart", "--force-off")
    assert "it was started as it was before, and is well" in ran.stdout
    assert "cache='writeback'" in daemon.xml("deaf", live=True)


def test_a_guest_that_does_not_let_go_of_a_disk_keeps_it(user: User, daemon: Libvirtd, boot: Boot) -> None:
    (daemon.home / "spare.raw").write_bytes(bytes(2**20))
    spare = f"<disk type='file'><source file='{daemon.home}/spare.raw'/><target dev='vdb' bus='virtio'/></disk>"
    boot("holds", beside=spare)
    before, live = daemon.xml("holds"), daemon.xml("holds", live=True)
    words = ("--set", "disk.cache@vdb=none", "--replug", "vdb", "--timeout", "1", "--yes")
    ran = user.run("apply", "holds", "--connect", daemon.uri, *words, status=1)
    assert "the guest did not let go of vdb within 1 s; it may still do so" in ran.stderr
    assert "plugs it in as it was, should the guest let go of it later" in ran.stderr
    assert (daemon.xml("holds"), daemon.xml("holds", live=True)) == (before, live)
    assert "is as it was before" in user.run("apply", "undo").stdout
    assert "no change 'last'" in user.run("apply", "undo", status=2).stderr


DONE_NOT_NOTED = (8, 10, 12)
"""The guest is off, started and paused, or on again, and the journal does not know yet."""

INSTANTS = range(6, 14)
"""Before and after each step of a restart; what comes before is the same in every change, see test_apply.py."""


@pytest.mark.parametrize("instants", [DONE_NOT_NOTED[:2], pytest.param(INSTANTS, marks=pytest.mark.long)], ids=str)
def test_killed_at_any_step_undo_lets_it_run_as_it_did(
    instants: Sequence[int], user: User, daemon: Libvirtd, boot: Boot
) -> None:
    boot("cycled")
    before, seen = daemon.xml("cycled"), set()
    patience = {7: 1.0}  # killed before the guest was asked to shut down, so undo waits for that in vain
    place = user.home / "virtune" / "journal"

    def killed(instant: int) -> bool:
        means = Means(restart=Restart(healthy=(SIGN,), timeout_seconds=patience.get(instant, 20.0), force_off=False))
        return killed_at(instant, daemon.uri, "cycled", ["disk.cache@vda=none"], journal=place, means=means)

    for instant in instants:
        assert killed(instant), instant
        seen.add(daemon.virsh("domstate", "cycled").strip())
        for entry in Journal(place).entries()[-1:]:
            undo(Virsh(daemon.uri, write=True), entry, journal=Journal(place), anyway=False, back=Back(restart=True))
        assert daemon.xml("cycled") == before, instant
        assert daemon.virsh("domstate", "cycled").strip() == "running", instant
        assert "cache='writeback'" in daemon.xml("cycled", live=True), instant
    assert not killed(INSTANTS.stop), "before and after each of seven steps"
    assert seen == {"shut off", "paused"} | ({"running"} if DONE_NOT_NOTED[2] in instants else set())
    assert "cache='none'" in daemon.xml("cycled", live=True)


def test_a_libvirtd_that_dies_half_way_leaves_the_way_back(user: User, daemon: Libvirtd, boot: Boot) -> None:
    boot("halves", obeys=False)  # it takes its time to shut down: all of it
    before, pid = daemon.xml("halves"), daemon.qemu("halves")
    words = ("--set", "disk.cache@vda=none", "--yes", "--force-off", *SOON)
    process = user.start("apply", "halves", "--connect", daemon.uri, *words)
    steps = user.home / "virtune" / "journal"
    wait_for(lambda: any("stopping" in path.read_text() for path in steps.glob("*/steps")))
    daemon.restart(signal.SIGKILL)
    _, said = process.communicate(timeout=90)
    assert "Traceback" not in said
    # each look at libvirt is a connection of its own: virtune may not have noticed, or put it back by itself
    assert process.returncode in (0, 1, 3), said
    user.run("apply", "undo", "--restart", "--force-off", status=0 if process.returncode == 0 else None)
    assert daemon.xml("halves") == before
    assert "cache='writeback'" in daemon.xml("halves", live=True)
    assert daemon.virsh("domstate", "halves").strip() == "running"
    assert (daemon.qemu("halves") == pid) == (process.returncode != 0)
    assert "no change 'last'" in user.run("apply", "undo", status=2).stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--restart",), "--restart needs --healthy"),
        (("--healthy", "ping"), "belong to --restart"),
        (("--restart", "--healthy", "telepathy"), "is not a sign of health"),
        (("--restart", "--healthy", "ping", "--replug", "vda"), "cannot be together"),
    ],
)
def test_words_that_do_not_belong_together_are_said(user: User, words: tuple[str, ...], says: str) -> None:
    ran = user.run("apply", "test", "--connect", "test:///default", "--yes", *words, status=2)
    assert says in ran.stderr


def test_what_cannot_be_is_refused_before_anything_is_done(user: User, daemon: Libvirtd, boot: Boot) -> None:
    still = boot("still")
    before = daemon.xml(still)
    once = ("apply", still, "--connect", daemon.uri, "--set", "disk.cache@vda=none", "--yes")
    ran = user.run(*once, "--restart", "--healthy", "guest-agent", status=3)
    assert "has no channel for QEMU's guest agent" in ran.stderr
    ran = user.run(*once, "--replug", "vda", status=3)
    assert "vda is what the guest boots from, and is not unplugged" in ran.stderr
    assert (daemon.xml(still), daemon.virsh("domstate", still).strip()) == (before, "running")
    daemon.define(daemon.xml(still).replace("cache='writeback'", "cache='none'"))
    words = ("apply", still, "--connect", daemon.uri, "--set", "disk.aio@vda=io_uring", "--yes", *BACK)
    assert "a restart would change that too: vda: cache writeback now, none" in user.run(*words, status=3).stderr
    daemon.define(daemon.xml(still).replace("cache='none'", "cache='writeback'"))
    other = daemon.home / "other.raw"
    other.write_bytes(boot_sector())
    daemon.define(daemon.xml(still).replace(f"{still}.raw", "other.raw"))
    assert (
        f"it runs on {daemon.home}/{still}.raw, and is configured with {other}" in user.run(*words, status=3).stderr
    )
    daemon.define(daemon.xml(still).replace("other.raw", f"{still}.raw"))
    daemon.virsh("suspend", still)
    assert "the domain is paused" in user.run(*words, status=3).stderr
    daemon.virsh("destroy", still)
    assert "it is off, so there was nothing to restart" in user.run(*words).stdout
    assert daemon.virsh("domstate", still).strip() == "shut off"
