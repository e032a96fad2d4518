# SPDX-License-Identifier: Apache-2.0
"""Probe and audit of a real libvirtd's domains: next start, live, and what the running QEMU shows."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import User
from tests.libvirt.conftest import STUDY, STUDY_THREADS
from tests.libvirtd import Libvirtd
from tests.published import complaints, strictly

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("libvirt")]
Make = Callable[..., str]


def rules_of(user: User, daemon: Libvirtd, name: str) -> set[tuple[str, str]]:
    words = ("audit", "--connect", daemon.uri, "--domain", name, "--fail-on", "never", "--json")
    found = strictly(user.run(*words).stdout)
    assert complaints("audit", found) == []
    (domain,) = found["domains"]
    assert domain["domain"] == name
    return {(one["rule"], one["severity"]) for one in domain["findings"] if one["rule"] not in ("R08", "R41", "R44")}


def test_three_domains_are_audited_right(user: User, daemon: Libvirtd, make: Make) -> None:
    make("plain")
    make("study", STUDY, rest=STUDY_THREADS)
    make("bad", "cache='unsafe' queue_size='500'", rest="<iothreads>2</iothreads>")
    make("bad2", "io='native' cache='none'", bus="sata", target="sda", rest="<iothreads>1</iothreads>", sparse=True)
    assert rules_of(user, daemon, "study") == set()
    plain = rules_of(user, daemon, "plain")
    assert ("R30", "try") in plain
    assert all(severity == "try" for _, severity in plain)
    bad = rules_of(user, daemon, "bad")
    assert bad >= {("R01", "error"), ("R36", "error"), ("R29", "warning")}
    assert rules_of(user, daemon, "bad2") >= {("R11", "try"), ("R27", "try"), ("R29", "warning")}
    ran = user.run("audit", "--connect", daemon.uri, status=4)
    assert ran.stdout.splitlines()[-1].startswith("4 domains audited: 2 errors, 2 warnings")


def test_what_libvirt_drops_is_told_before_it_is_missed(
    user: User, daemon: Libvirtd, make: Make, tmp_path: Path
) -> None:
    make("dropped", "iothread='1'", rest="<iothreads>1</iothreads>")
    polling = "<iothreadids><iothread id='1'><poll max='0'/></iothread></iothreadids>"
    xml = daemon.xml("dropped").replace("</iothreads>", f"</iothreads>{polling}")
    daemon.define(xml)
    kept = "<poll" in daemon.xml("dropped")
    (tmp_path / "d.xml").write_text(xml)
    ran = user.run("audit", str(tmp_path / "d.xml"), "--here", "--fail-on", "never")
    assert ("R37" in ran.stdout) == (not kept)


def test_a_running_domain_shows_its_active_settings(user: User, daemon: Libvirtd, make: Make) -> None:
    make("live", STUDY, rest=STUDY_THREADS)
    daemon.virsh("start", "live")
    found = strictly(user.run("host", "probe", "--connect", daemon.uri, "--json").stdout)
    assert complaints("domains", found) == []
    (domain,) = found["domains"]
    running = domain["running"]
    assert (running["state"], running["pid"]) == ("running", daemon.qemu("live"))
    assert running["io_urings"] >= 1
    assert running["in_force"] == [{"target": "vda", "direct": True, "aio": "io_uring", "no_flush": False}]
    assert domain["findings"] == []
    # a change of the configuration alone waits for a power-off
    daemon.define(daemon.xml("live").replace("cache='none' io='io_uring'", "cache='writeback'"))
    ran = user.run("host", "probe", "--connect", daemon.uri, "--domain", "live")
    assert "cache none now, writeback after a power-off" in ran.stdout
    assert "io io_uring now, unset after a power-off" in ran.stdout
    assert "verified: O_DIRECT, aio io_uring" in ran.stdout


def test_a_setting_that_somebody_changed_behind_libvirt_is_found(user: User, daemon: Libvirtd, make: Make) -> None:
    make("behind", "cache='none'")
    daemon.virsh("start", "behind")
    image = daemon.home / "behind.raw"
    reopen = (
        '{"execute":"blockdev-reopen","arguments":{"options":[{"driver":"file","filename":"%s","node-name":'
        '"libvirt-1-storage","cache":{"direct":false,"no-flush":false},"auto-read-only":true,"discard":"unmap"}]}}'
    )
    said = daemon.virsh("qemu-monitor-command", "behind", reopen % image, ok=False)
    assert '"return":{}' in said, said
    ran = user.run("host", "probe", "--connect", daemon.uri)
    assert "vda: cache=none, and the image is open without O_DIRECT (R81)" in ran.stdout


def test_the_probe_neither_writes_nor_taints(user: User, daemon: Libvirtd, make: Make) -> None:
    make("quiet")
    daemon.virsh("start", "quiet")
    daemon.virsh("blkdeviotune", "quiet", "vda", "--total-iops-sec", "150", "--live")
    before = (daemon.xml("quiet"), daemon.xml("quiet", live=True), daemon.virsh("dominfo", "quiet"))
    user.run("host", "probe", "--connect", daemon.uri)
    user.run("audit", "--connect", daemon.uri, "--fail-on", "never")
    ran = user.run("diagnose", "quiet", "--connect", daemon.uri, "--seconds", "1", "--json")
    (disk,) = strictly(ran.stdout)["disks"]
    assert (disk["disk"], disk["iops"], disk["bottleneck"]["cause"]) == ("quiet:vda", 0, "undecidable")
    assert {one["role"] for one in disk["threads"]} >= {"vcpu", "main"}
    assert disk["emulated"], "its figures are labelled"
    assert disk["no_guideline"] == "no read and no write was completed"
    seen = strictly(user.run("top", "--once", "--json", "--connect", daemon.uri).stdout)
    (vm,) = [one for one in seen["vms"] if one["vm"] == "quiet"]
    assert [(one["disk"], one["iops"]) for one in vm["disks"]] == [("vda", 0)]
    assert vm["disks"][0]["limits"] == [{"unit": "iops", "allowed": 150, "done": 0}], "set on the running VM alone"
    assert vm["emulated"]
    assert {one["role"] for one in vm["threads"]} >= {"vcpu", "main"}
    assert len([line for line in seen["missing"] if "taint" in line]) == 1, "said once for all disks"
    refused = user.run("diagnose", "quiet:vdz", "--connect", daemon.uri, "--seconds", "1", status=2).stderr
    assert "quiet has no disk 'vdz'" in refused
    assert "it has vda" in refused
    after = (daemon.xml("quiet"), daemon.xml("quiet", live=True), daemon.virsh("dominfo", "quiet"))
    assert [text.replace("CPU time", "") for text in before[:2]] == list(after[:2])
    log = (daemon.home / "var/log/libvirt/qemu/quiet.log").read_text()
    assert "custom-monitor" not in log


def test_hostile_names_are_names(user: User, daemon: Libvirtd, make: Make) -> None:
    make("a; destroy b")
    make("-c")
    make("x$(touch pwned)`id`")
    ran = user.run("audit", "--connect", daemon.uri, "--fail-on", "never")
    assert "a; destroy b" in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("3 domains")
    ran = user.run("audit", "--connect", daemon.uri, "--domain", "x$(touch pwned)`id`", "--fail-on", "never")
    assert ran.stdout.splitlines()[-1].startswith("1 domain")
    assert not (user.home / "pwned").exists()
    for uuid in daemon.virsh("list", "--all", "--uuid").split():
        daemon.virsh("undefine", uuid)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--connect", "qemu:///system?socket=/nowhere/libvirt-sock"), "cannot reach libvirt"),
        (("--connect", "nonsense"), "libvirt"),
        (("--connect", "test:///default", "--domain", "nobody"), "no domain 'nobody'"),
    ],
)
def test_a_libvirt_that_is_not_there_is_said(user: User, words: tuple[str, ...], says: str) -> None:
    ran = user.run("host", "probe", *words, status=None)
    assert ran.status in (1, 3)
    assert says in ran.stderr


def test_libvirts_own_test_driver_is_enough_for_looking(user: User) -> None:
    ran = user.run("host", "probe", "--connect", "test:///default")
    assert "1 domain" in ran.stdout
