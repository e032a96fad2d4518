# SPDX-License-Identifier: Apache-2.0
"""Limits, power, disks and health of a domain, on a libvirt in memory: what is never done, and in what order."""

import time

import pytest
from tests.apply.shelf import UUID, WEB, Shelf

from virtune.apply.health import read_sign, wait_until_well
from virtune.apply.journal import Plug, Restart
from virtune.apply.libvirt import (
    LibvirtDomain,
    Power,
    StillPluggedError,
    StillRunningError,
    exchange,
    mounted,
    require_spare,
)
from virtune.flows.domains.apply import put_all_back, require_restartable
from virtune.model.domain import SettingChange
from virtune.model.errors import PreconditionError, VirtuneError

HOW = Restart(healthy=("guest-agent",), timeout_seconds=1.0, force_off=False)


def limit(name: str, value: str | None) -> SettingChange:
    return SettingChange(knob=f"disk.throttle_{name}", at="vda", value=value)


def limited(**limits: int) -> str:
    tune = "".join(f"<{name}>{value}</{name}>" for name, value in limits.items())
    return WEB.replace("<target dev='vda'", f"<iotune>{tune}</iotune><target dev='vda'")


def said(*turns: SettingChange, **limits: int) -> list[dict[str, str]]:
    """The limits that each command sets, in their order."""
    pairs = LibvirtDomain(Shelf(live=limited(**limits)), UUID).live_pairs(turns)
    return [dict(zip(do[3:-1:2], do[4:-1:2], strict=True)) for _, (do, _) in pairs]


def test_a_limit_that_is_lifted_comes_before_one_that_cannot_stand_beside_it() -> None:
    first, second = said(limit("iops_read", "100"), limit("iops", "0"), total_iops_sec=500)
    assert first == {"--total-iops-sec": "0", "--read-iops-sec": "0", "--write-iops-sec": "0"}
    assert second == {"--total-iops-sec": "0", "--read-iops-sec": "100", "--write-iops-sec": "0"}


def test_a_limit_leaves_its_siblings_as_they_are() -> None:
    (only,) = said(limit("iops_read", "150"), read_iops_sec=100, write_iops_sec=200)
    assert only == {"--total-iops-sec": "0", "--read-iops-sec": "150", "--write-iops-sec": "200"}


def test_a_limit_s_way_back_has_what_was_before() -> None:
    ((_, (_, back)),) = LibvirtDomain(Shelf(live=limited(read_iops_sec=100, write_iops_sec=200)), UUID).live_pairs(
        (limit("iops_read", None),)
    )
    assert back[3:-1] == ("--total-iops-sec", "0", "--read-iops-sec", "100", "--write-iops-sec", "200")


@pytest.mark.parametrize(
    ("state", "used", "never"),
    [("paused", (1_000_000,), True), ("paused", (60_000_000,), False), ("paused", (30_000_000, 30_000_000), False),
     ("running", (1_000_000,), False)],
)  # fmt: skip
def test_a_guest_that_was_paused_after_it_ran_has_something_to_lose(
    state: str, used: tuple[int, ...], never: bool
) -> None:
    stats = "".join(f"  vcpu.{number}.time={one}\n" for number, one in enumerate(used))
    shelf = Shelf(live=WEB, state_word=state, answers={"domstats": f"Domain: 'web'\n{stats}"})
    assert Power(shelf, UUID).never_ran() is never


class Deaf(Shelf):
    """A guest that does not hear that it is to shut down."""

    def run(self, *words: str, ok: tuple[int, ...] = (0,)) -> str:
        if words[0] == "shutdown":
            self.said.append(words)
            return ""
        return super().run(*words, ok=ok)


def test_no_plug_is_pulled_unasked() -> None:
    shelf = Deaf(live=WEB)
    with pytest.raises(StillRunningError, match=r"the guest did not shut down within 0.1 s"):
        Power(shelf, UUID).shut_down(0.1, force_off=False)
    assert shelf.verbs() == ["shutdown"]
    assert shelf.live is not None
    Power(shelf, UUID).shut_down(0.1, force_off=True)
    assert shelf.verbs()[-1] == "destroy"


MOUNTED = """ Mountpoint   Name   Type   Target
-----------------------------------
 /srv         vdb1   ext4   vdb
"""
# it boots from an image that is only read, so the other disk is all that it has of its own
ALONE = WEB.replace("<target dev='vda' bus='virtio'/>", "<target dev='vda' bus='virtio'/><readonly/>")


@pytest.mark.parametrize(
    ("target", "xml", "mounts", "says"),
    [
        ("vda", WEB, "", "vda is what the guest boots from"),
        ("vdb", WEB, MOUNTED, "the guest has vdb mounted on /srv"),
        ("vdb", ALONE, "", "vdb is the guest's only disk"),
        ("vdz", WEB, "", "there is no disk 'vdz'"),
    ],
    ids=["boots from it", "mounted", "its only one", "not there"],
)
def test_a_disk_that_the_guest_cannot_be_without_is_not_unplugged(
    target: str, xml: str, mounts: str, says: str
) -> None:
    shelf = Shelf(live=xml, answers={"domfsinfo": mounts})
    with pytest.raises(PreconditionError, match=says):
        require_spare(shelf, UUID, xml.encode(), target)
    assert shelf.verbs() == []


def test_a_disk_that_nobody_uses_may_be_unplugged() -> None:
    require_spare(Shelf(live=WEB), UUID, WEB.encode(), "vdb")


def test_a_guest_that_does_not_come_back_is_waited_for_no_longer_than_asked() -> None:
    shelf = Shelf(live=WEB, refused={"qemu-agent-command"})
    begun = time.monotonic()
    with pytest.raises(VirtuneError, match=r"did not come back within 0.2 s: its agent does not answer"):
        wait_until_well(shelf, UUID, [read_sign("guest-agent")], lambda: None, 0.2)
    assert time.monotonic() - begun < 60


def test_a_guest_that_is_off_again_is_not_waited_for() -> None:
    shelf = Shelf(live=None, refused={"qemu-agent-command"})
    with pytest.raises(VirtuneError, match=r"did not come back: it is shut off"):
        wait_until_well(shelf, UUID, [read_sign("guest-agent")], lambda: None, 60)


@pytest.mark.parametrize("action", ["restart", "preserve", "rename-restart"])
def test_a_guest_that_does_not_stay_off_is_not_power_cycled(action: str) -> None:
    xml = WEB.replace("<on_poweroff>destroy", f"<on_poweroff>{action}")
    shelf = Shelf(xml=xml, live=xml)
    with pytest.raises(PreconditionError, match=f"its <on_poweroff> is {action}"):
        require_restartable(shelf, shelf.dump([UUID])[0], HOW)
    half = Shelf(xml=WEB, live=xml)  # what runs decides, and what starts next does too
    with pytest.raises(PreconditionError, match=f"its <on_poweroff> is {action}"):
        require_restartable(half, half.dump([UUID])[0], HOW)
    assert shelf.verbs() == half.verbs() == []


def patient(looks: int, after: str | None) -> Shelf:
    """A guest that is as it was, whatever it is asked, for so many looks, and then as said."""
    shelf = Shelf(live=WEB)

    def seen(words: tuple[str, ...]) -> None:
        if words[0] == "domstate":
            before = sum(one[0] == "domstate" for one in shelf.said)
            shelf.live = WEB if before < looks else after

    shelf.seen = seen
    return shelf


def looks_of(shelf: Shelf) -> int:
    return sum(words[0] == "domstate" for words in shelf.said)


@pytest.mark.parametrize("looks", [0, 1, 2])
def test_a_guest_that_shuts_down_is_asked_once_and_looked_at_until_it_is_off(looks: int) -> None:
    shelf = patient(looks, None)
    Power(shelf, UUID).shut_down(60, force_off=False)
    assert (shelf.verbs(), looks_of(shelf)) == (["shutdown"], looks + 1)


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("force_off", [False, True])
def test_only_where_it_may_is_the_plug_of_a_guest_pulled_that_does_not_shut_down(
    force_off: bool, refused: bool
) -> None:
    shelf = patient(1000, None)
    shelf.refused = {"shutdown"} if refused else set()
    seconds = 60 if refused else 0.3  # one that refuses is not waited for
    begun = time.monotonic()
    if force_off:
        Power(shelf, UUID).shut_down(seconds, force_off=True)
    else:
        says = "libvirt refused `shutdown`" if refused else r"did not shut down within 0.3 s"
        with pytest.raises(StillRunningError, match=says):
            Power(shelf, UUID).shut_down(seconds, force_off=False)
    assert time.monotonic() - begun < 30
    assert [verb for verb in shelf.verbs() if verb != "shutdown"] == (["destroy"] if force_off else [])
    assert shelf.verbs()[0] == "shutdown"
    assert looks_of(shelf) <= 6  # between two looks it rests: libvirt has others to serve


@pytest.mark.parametrize("off", [False, True])
def test_a_plug_that_cannot_be_pulled_is_an_error_only_while_the_guest_runs(off: bool) -> None:
    shelf = Shelf(live=None if off else WEB, refused={"destroy"})
    if off:
        Power(shelf, UUID).pull_the_plug()
    else:
        with pytest.raises(VirtuneError, match="libvirt refused `destroy`"):
            Power(shelf, UUID).pull_the_plug()


@pytest.mark.parametrize(("word", "verbs"), [("paused", ["resume"]), ("running", []), ("in shutdown", [])])
def test_only_a_paused_guest_is_resumed(word: str, verbs: list[str]) -> None:
    shelf = Shelf(live=WEB, state_word=word)
    Power(shelf, UUID).resume()
    assert shelf.verbs() == verbs


@pytest.mark.parametrize("looks", [0, 2])
def test_a_disk_is_attached_again_only_once_the_guest_has_let_go_of_it(looks: int) -> None:
    shelf = patient(looks, WEB.replace("dev='vdb'", "dev='vdc'"))
    exchange(shelf, UUID, Plug(target="vdb", old="<disk/>", new="<disk n='2'/>"), 60)
    assert shelf.verbs() == ["detach-device", "attach-device"]
    assert [words[1::2] for words in shelf.said if "device" in words[0]] == [(UUID, "--live")] * 2
    assert looks_of(shelf) == looks + 1


def test_a_disk_that_the_guest_keeps_is_not_attached_a_second_time() -> None:
    shelf = Shelf(live=WEB)
    with pytest.raises(StillPluggedError, match=r"did not let go of vdb within 0.3 s; it may still do so"):
        exchange(shelf, UUID, Plug(target="vdb", old="<disk/>", new="<disk/>"), 0.3)
    assert shelf.verbs() == ["detach-device"]
    assert looks_of(shelf) <= 4


def test_a_guest_s_filesystems_are_told_by_disk() -> None:
    said = """ Mountpoint   Name   Type   Target
--------------------------------------
 /            vda1   ext4   vda
 /srv         md0    xfs    vdb,vdc
 /a place     vdb2   ext4   vdb
 /boot        none
"""
    shelf = Shelf(live=WEB, answers={"domfsinfo": said})
    found = mounted(shelf, UUID)
    assert {name: found[name] for name in ("vda", "vdb", "vdc")} == {
        "vda": ("/",), "vdb": ("/srv", "/a place"), "vdc": ("/srv",)
    }  # fmt: skip
    assert mounted(Shelf(live=WEB, refused={"domfsinfo"}), UUID) == {}


class Talking(Shelf):
    """A domain with a console on which a guest writes what it is asked for."""

    script = ""

    def command(self, *words: str) -> list[str]:
        assert words == ("console", UUID)
        return ["sh", "-c", self.script]


@pytest.mark.parametrize(
    ("script", "says", "resumed"),
    [
        ("echo 'Escape character is ^]'; echo 'web login:'; exec sleep 20", None, True),
        ("echo 'web login:'; echo 'Escape character is ^]'; echo panic; exec sleep 20",
         r"never showed 'login' \(its console's last line: panic", True),
        ("echo 'error: no console'", "console could not be opened", False),
    ],
    ids=["shown", "not shown since it was opened", "not opened"],
)  # fmt: skip
def test_a_guest_s_console_is_open_before_it_runs_and_must_show_its_sign(
    script: str, says: str | None, resumed: bool
) -> None:
    shelf = Talking(live=WEB, state_word="paused")
    shelf.script = script
    signs = [read_sign("console:login")]
    if says is None:
        wait_until_well(shelf, UUID, signs, Power(shelf, UUID).resume, 15)
    else:
        with pytest.raises(VirtuneError, match=says):
            wait_until_well(shelf, UUID, signs, Power(shelf, UUID).resume, 2)
    assert shelf.verbs() == (["resume"] if resumed else [])


def test_of_what_isput_all_back_one_that_fails_keeps_no_other_back_and_a_thread_that_is_gone_is_no_error() -> None:
    shelf = Shelf(live=WEB, refused={"emulatorpin"})
    commands = [
        ("vcpupin", UUID, "3", "0", "--live"), ("iothreadpin", UUID, "1", "0", "--live"),
        ("iothreadset", UUID, "1", "--poll-max-ns", "0", "--live"), ("emulatorpin", UUID, "0", "--live"),
        ("vcpupin", UUID, "0", "0", "--live"),
    ]  # fmt: skip
    with pytest.raises(VirtuneError, match="refused `emulatorpin`"):
        put_all_back(LibvirtDomain(shelf, UUID), commands)
    assert [words for words in shelf.said if words[0] != "domstate"] == commands[3:]
