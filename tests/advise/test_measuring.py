# SPDX-License-Identifier: Apache-2.0
"""The command that an audit offers measures this disk: its settings, its storage, its own guest where that can be."""

import shlex
from dataclasses import replace
from pathlib import Path

import click
import pytest
from tests.advise.cases import xml

from virtune.advise.audit import audit, not_looked_at, rules, rules_by_need
from virtune.advise.rule import UNKNOWN_PLACE, measuring
from virtune.cli import compare
from virtune.dialects.languages import language_of
from virtune.dialects.libvirt.domain import read_domain
from virtune.flows.domains.domains import FoundDomain, from_paths
from virtune.model.finding import HostView, ImageView, Need, Running, Subject
from virtune.plan.arms import arm_from_text, base_stack, check_arms
from virtune.plan.like import Looked, carried, likeness
from virtune.report.pages.audit import domains_page
from virtune.shell import run as run_command

DOMAINS = Path(__file__).parents[1] / "captures" / "domains"
AGENT = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>"
DISK = (
    "<disk type='{0}'><driver name='qemu' type='raw' cache='writeback'/>"
    "<source {0}='{1}'/><target dev='vda' bus='virtio'/></disk>"
)


def subject(kind: str, place: str, *, agent: bool = False, running: bool = False) -> Subject:
    disk = DISK.format(kind, place).replace("source block", "source dev")
    text = f"<domain type='kvm'><name>web 1</name><devices>{disk}{AGENT if agent else ''}</devices></domain>"
    domain = read_domain(text.encode())
    live = Running(state="running", reason="", live=domain, pid=1) if running else None
    return Subject(domain=domain, running=live, connect="qemu:///system" if running else None)


def command(one: Subject, rig: str = "") -> str:
    return measuring(one, one.domain.disks[0], {}, {"disk.cache": "none"}, rig=rig) or ""


def test_it_measures_where_the_image_lies() -> None:
    assert " --scratch '/srv/my images' " in command(subject("file", "/srv/my images/a.raw"))
    assert " --target /dev/vg/a " in command(subject("block", "/dev/vg/a"))
    assert UNKNOWN_PLACE in command(subject("file", "local:101/vm-101-disk-0.raw"))
    for like in ("", "web"):
        through = replace(subject("block", "/dev/vg/a"), host=HostView(qemu=(7, 2)), like=like)
        disks = tuple(replace(disk, cache="writethrough") for disk in through.domain.disks)
        through = replace(through, domain=replace(through.domain, disks=disks))
        (words,) = [found.seen.measure for found in audit(through) if found.rule.id == "R19"]
        assert words is not None
        assert UNKNOWN_PLACE in words, "a load that writes is never told to write to a VM's device"
        assert "--workload randwrite-4k-qd1" in words


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ("", {"disk.aio=io_uring", "disk.detect_zeroes=on", "disk.cache=none"}),
        (",discard=on", {"disk.aio=io_uring", "disk.detect_zeroes=unmap", "disk.discard=unmap"}),
        (",aio=native,detect_zeroes=0", {"disk.aio=native"}),
        (",aio=threads,cache=writeback", {"disk.aio=threads", "disk.detect_zeroes=on", "disk.cache=writeback"}),
    ],
)
def test_of_a_proxmox_disk_audit_and_like_and_probe_say_the_same(options: str, settings: set[str]) -> None:
    text = f"scsihw: virtio-scsi-single\nscsi0: local-lvm:vm-100-disk-0{options}\n"
    vm = language_of(text.encode()).read(text.encode())
    one = Subject(domain=vm, host=HostView(kernel=(6, 8)))
    (words,) = [found.seen.measure for found in audit(one) if found.rule.id == "R30"]
    assert words is not None
    now = set(words.partition("now:")[2].partition(" ")[0].split(","))
    assert settings <= now
    assert ("detect_zeroes" in words) == any("detect_zeroes" in word for word in settings)
    assert now - {"disk.discard=ignore", "export.iothread=off"} <= {
        *likeness(Looked(domain=vm, disk=vm.disks[0])).settings
    }
    page = " ".join(domains_page([("100.conf", one, ())], []))
    engine = next(word.partition("=")[2] for word in settings if word.startswith("disk.aio="))
    assert f"io {engine}{'' if 'aio=' in options else ' (default)'}," in page


def test_it_measures_in_the_guest_where_one_runs_with_an_agent() -> None:
    words = command(subject("file", "/srv/a.raw", agent=True, running=True))
    assert words.startswith("virtune compare --rig 'libvirt:web 1' --connect qemu:///system --scratch /srv ")
    for one in (
        subject("file", "/srv/a.raw", running=True),
        subject("file", "/srv/a.raw", agent=True),
        subject("block", "/dev/vg/a", agent=True, running=True),
    ):
        assert "libvirt:" not in command(one)
    # an IOThread of the guest's own cannot be added for a trial, so that is measured beside it
    one = subject("file", "/srv/a.raw", agent=True, running=True)
    (found,) = [finding for finding in audit(one) if finding.rule.id == "R30"]
    measure = found.seen.measure or ""
    assert measure.startswith("virtune compare --rig vhost-user --scratch /srv --arm now:disk.format=")
    assert "disk.cache=writeback" in measure
    assert measure.endswith("export.iothread=on")


def test_every_command_that_is_offered_can_be_run_as_it_stands() -> None:
    tried = set()
    for found in from_paths([DOMAINS], here=False):
        assert isinstance(found, FoundDomain)
        names = {disk.source.name for disk in found.subject.disks}
        thin = ImageView(size_bytes=2**40, allocated_bytes=0, backing=True, cluster_bytes=65536, extended_l2=False)
        host = HostView(qemu=(7, 2), cpus=64, images=dict.fromkeys(names, thin))
        domain = found.subject.domain
        live = Running(state="running", reason="", live=domain, pid=1)
        for seen in (
            Subject(domain=domain, host=host),
            Subject(domain=domain, host=host, running=live, connect="qemu:///system"),
            Subject(domain=domain, host=host, running=live, connect="qemu:///system", like="web:1"),
        ):
            for finding in audit(seen):
                if finding.seen.measure and UNKNOWN_PLACE not in finding.seen.measure:
                    require_runs(finding.seen.measure, seen if seen.like else None)
                    tried.add(finding.rule.id)
    assert tried >= {"R11", "R18", "R24", "R30", "R34"}


def require_runs(words: str, like: Subject | None = None) -> None:
    program, verb, *rest = shlex.split(words)
    assert (program, verb) == ("virtune", "compare")
    context = compare.compare.make_context("compare", rest)
    assert not (context.params["target"] and "write" in str(context.params["workloads"])), (
        "no load writes to a VM's disk"
    )
    rig = context.params["rig"] or ("qemu" if like else "")
    before: tuple[str, ...] = ()
    if like is not None:
        vm, _, target = context.params["like"].rpartition(":")
        disk = like.domain.disk(target)
        assert vm == like.like
        assert disk is not None
        before = carried(likeness(Looked(domain=like.domain, disk=disk, image=like.image(disk))), rig).settings
    base, settings = base_stack([*([f"rig={rig}"] if rig else []), *before])
    asked = [*(["now:"] if like else []), *context.params["arms"]]
    arms = check_arms([arm_from_text(text, base, settings=settings) for text in asked])
    assert [arm.name for arm in arms] == ["now", "then"]
    assert arms[0].stack != arms[1].stack


def test_a_command_that_does_not_run_is_noticed() -> None:
    with pytest.raises(click.UsageError):
        require_runs("virtune compare --no-such-option")


def test_no_cache_or_engine_is_proposed_for_a_lun_that_is_passed_through() -> None:
    text = xml(bus="scsi").replace(b"device='disk'", b"device='lun'")
    subject = Subject(domain=read_domain(text))
    assert [disk.device for disk in subject.disks] == ["lun"]
    assert [finding.seen.measure for finding in audit(subject) if finding.seen.measure] == []


@pytest.mark.parametrize("option", ["-drive file={},if=virtio", "-hda {}", "{}"])
def test_a_format_that_qemu_looks_for_is_looked_for_here_and_unknown_elsewhere(option: str, tmp_path: Path) -> None:
    images = [tmp_path / f"{number}.qcow2" for number in range(5)]
    for number, image in enumerate(images):
        below = ["-b", str(images[number - 1]), "-F", "qcow2"] if number else []
        size = [] if number else ["1M"]
        run_command(["qemu-img", "create", "-q", "-f", "qcow2", *below, str(image), *size], timeout_seconds=60)
    file = tmp_path / "vm.sh"
    file.write_text(f"qemu-system-x86_64 -enable-kvm {option.format(images[-1])}\n")

    def audited(*, here: bool) -> tuple[dict[str, str | None], set[str], str]:
        (found,) = from_paths([file], here=here)
        assert isinstance(found, FoundDomain)
        rules_seen = {one.rule.id: one.seen.measure for one in audit(found.subject)}
        lacking = {one.unknown: set(one.rules) for one in not_looked_at(found.subject, rules_by_need(rules()))}
        page = " ".join(domains_page([("", found.subject, ())], []))
        return rules_seen, lacking.get(Need.FORMAT.value, set()), page

    seen, lacking, page = audited(here=True)
    assert {"R23", "R24", "R25"} <= seen.keys()
    assert not lacking
    assert "format qcow2," in page
    seen, lacking, page = audited(here=False)
    assert seen.keys().isdisjoint({"R23", "R24"})
    assert {"R23", "R24", "R22", "R33"} <= lacking
    assert not any(seen.values()), "an experiment would have to say which format"
    assert "format unknown," in page
    images[-1].write_bytes(bytes(1024))
    assert "format raw," in audited(here=True)[2]
    images[-1].unlink()
    assert "R23" in audited(here=True)[1]
