# SPDX-License-Identifier: Apache-2.0
"""`virtune fix` on VMs with planted misconfigurations: it finds and cures them, and leaves what is well configured.

Engine, cache, IOThread, queues, clusters, limit, pin, bus and discard are cured. A chain of images is named and left:
shortening it copies data.
"""

import hashlib
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import User
from tests.libvirt.tiny import UP, boot_tiny, start
from tests.libvirtd import Libvirtd

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("libvirt")]
Make = Callable[..., str]

MEASURED = ("--rounds", "16", "--seconds", "200ms", "--ramp", "0", "--span", "64M", "--attempts", "1")
BACK = ("--restart", "--healthy", f"console:^{UP}$", "--timeout", "20")
GOOD = "cache='none' io='io_uring' discard='unmap'"
THREAD = "<iothreads>1</iothreads>"
TOGETHER = f"{THREAD}<cputune><vcpupin vcpu='0' cpuset='0'/><iothreadpin iothread='1' cpuset='0'/></cputune>"
APART = f"{THREAD}<cputune><vcpupin vcpu='0' cpuset='0'/><iothreadpin iothread='1' cpuset='1'/></cputune>"


@dataclass(frozen=True)
class Planted:
    """A VM: its disk's driver, what else it has, and what of it is wrong; `cured` is then in its configuration, and
    `said` is what `fix` says before. `also` are the words without which it leaves that alone.
    """

    name: str
    driver: str
    said: str
    wrong: str
    cured: str
    rest: str = ""
    within: str = ""
    vcpus: int = 1
    rig: str = "vhost-user"
    also: tuple[str, ...] = ()
    image: tuple[str, ...] = ()


PLANTED = (
    Planted("cache", f"{GOOD} iothread='1'".replace("'none'", "'unsafe'"), "R01  cache=unsafe",
            "cache='unsafe'", "cache='none'", rest=THREAD),
    Planted("iothread", GOOD, "R29  IOThread 1 is defined but no disk uses it", GOOD + "/>", "iothread='1'",
            rest=THREAD),
    Planted("queues", f"{GOOD} iothread='1' queue_size='500'", "R36  queue_size=500", "queue_size='500'",
            "queue_size='256'", rest=THREAD),
    Planted("cluster", f"{GOOD} iothread='1'", "R22  L2 tables of 0 MiB, cache of 0 MiB",
            "<max_size unit='bytes'>65536<", "<max_size unit='bytes'>163840<", rest=THREAD,
            image=("-f", "qcow2", "-o", "cluster_size=4k", "64M"),
            within="<metadata_cache><max_size unit='bytes'>65536</max_size></metadata_cache>"),
    Planted("throttle", f"{GOOD} iothread='1'", "it may be meant, so it is for you to ask, by --also R47",
            "<total_iops_sec>150<", f"{GOOD} iothread='1'", rest=THREAD, also=("--also", "R47"),
            within="<iotune><total_iops_sec>150</total_iops_sec></iotune>"),
    Planted("pin", f"{GOOD} iothread='1'", "R84  iothread:1 is pinned to 4000, and no such CPU is online",
            "cpuset='4000'", f"{GOOD} iothread='1'", rest=TOGETHER.replace("1' cpuset='0", "1' cpuset='4000")),
    Planted("discard", "cache='none' io='io_uring' iothread='1'",
            "it risks data, so it is for you to ask, by --also R25", "io='io_uring' iothread='1'/>",
            "discard='unmap' iothread='1'/>", rest=THREAD, also=("--also", "R25")),
)  # fmt: skip

UNSURE = (
    Planted("engine", "cache='none' io='threads' discard='unmap' iothread='1'", "measured as flash",
            "io='threads'", "io='io_uring'", rest=THREAD),
    Planted("together", f"{GOOD} iothread='1'", "R87  iothread:1 is pinned to 0, where vCPUs are pinned too",
            "iothread='1' cpuset='0'", "iothread='1' cpuset='1'", rest=TOGETHER, rig="qemu"),
)  # fmt: skip
"""What is better by so little that a busy host hides it: 60 %, and 200 %."""


def plant(daemon: Libvirtd, make: Make, one: Planted) -> Path:
    """Define the VM, and return its image."""
    make(one.name, one.driver, rest=one.rest)
    image = daemon.home / f"{one.name}.raw"
    xml = daemon.xml(one.name).replace("<vcpu placement='static'>2<", f"<vcpu placement='static'>{one.vcpus}<")
    if one.image:
        subprocess.run(["qemu-img", "create", "-q", *one.image[:-1], image, one.image[-1]], check=True)
        xml = xml.replace("type='raw'", f"type='{one.image[1]}'")
    else:
        image.write_bytes(b"\x01" * 2**20)
    if "R25" in one.also:  # a thin image
        image.write_bytes(b"\x01" * 4096)
        os.truncate(image, 2**20)
    driver, end = xml[xml.index("<driver name") :].split("/>", 1)[0], "/>"
    if one.within.startswith("<metadata"):
        xml = xml.replace(driver + end, f"{driver}>{one.within}</driver>")
    elif one.within:
        xml = xml.replace(driver + end, f"{driver}{end}{one.within}")
    daemon.define(xml)
    return image


def cure(user: User, daemon: Libvirtd, image: Path, one: Planted) -> None:
    """Have it fixed, and undone: only what is wrong changes, and the image not at all."""
    before, content = daemon.xml(one.name), hashlib.sha256(image.read_bytes()).digest()
    assert one.wrong in before
    called = ("fix", one.name, "--connect", daemon.uri, "--rig", one.rig, *MEASURED)
    if one.also:
        asked = user.run(*called, "--yes")
        assert one.said in asked.stdout
        assert daemon.xml(one.name) == before, "what may be meant, or risks data, is asked for"
    ran = user.run(*called, "--yes", *one.also)
    print(ran.stdout)
    assert one.also or one.said in ran.stdout
    after = daemon.xml(one.name)
    assert one.cured in after
    assert one.wrong not in after
    if "R47" in one.also:  # what is right whatever it costs may be slower, and stays
        assert "is better than it was" in ran.stdout
    assert hashlib.sha256(image.read_bytes()).digest() == content
    assert user.run(*called, "--yes", "--dry-run").stdout.endswith(f"{one.name}: nothing to change\n")
    user.run("undo", "last")
    assert daemon.xml(one.name) == before


FAST = ("cache", "throttle", "pin")
LONG = pytest.mark.long(always="three others are cured in each run")


@pytest.mark.parametrize(
    "one",
    [pytest.param(one, id=one.name, marks=() if one.name in FAST else LONG) for one in PLANTED],
)
def test_it_finds_and_cures_what_was_planted(user: User, daemon: Libvirtd, make: Make, one: Planted) -> None:
    cure(user, daemon, plant(daemon, make, one), one)


@pytest.mark.first
@pytest.mark.long(always="what is right whatever it costs is cured in each run")
@pytest.mark.parametrize("one", UNSURE, ids=lambda one: one.name)
def test_it_cures_what_only_a_measurement_shows(user: User, daemon: Libvirtd, make: Make, one: Planted) -> None:
    cure(user, daemon, plant(daemon, make, one), one)


@pytest.mark.parametrize("rest", [THREAD, APART], ids=["plain", "pinned"])
def test_it_leaves_a_well_configured_vm_alone(user: User, daemon: Libvirtd, make: Make, rest: str) -> None:
    make("good", f"{GOOD} iothread='1'", rest=rest)
    before = daemon.xml("good")
    ran = user.run("fix", "good", "--connect", daemon.uri, "--yes", *MEASURED)
    print(ran.stdout)
    assert "good: nothing to change" in ran.stdout
    assert daemon.xml("good") == before


@pytest.mark.first
@pytest.mark.timeout(900)
@pytest.mark.long(always="the refusal without a restart is quick, and audit/advise have the change")
def test_a_disk_on_sata_gets_virtio_where_the_guest_comes_back(user: User, daemon: Libvirtd) -> None:
    boot_tiny(daemon, "bus", anywhere=True)
    daemon.virsh("destroy", "bus")
    sata = daemon.xml("bus").replace("bus='virtio'", "bus='sata'").replace("dev='vda'", "dev='sda'")
    sata = sata.replace("cache='writeback'", GOOD)
    daemon.define(re.sub("(<target dev='sda'.*?)<address.*?/>", r"\1", sata, count=1, flags=re.DOTALL))
    start(daemon, "bus")
    before = daemon.xml("bus")
    called = ("fix", "bus:sda", "--connect", daemon.uri, "--rig", "qemu", "--yes", *MEASURED)
    left = user.run(*called, timeout=300)
    assert "R27 (bus=sata): a guest without the driver does not boot, so it takes a running VM" in left.stdout
    assert daemon.xml("bus") == before
    ran = user.run(*called, *BACK, timeout=800)
    print(ran.stdout)
    assert "it was powered off and on, is healthy, and runs with all of it" in ran.stdout
    assert "bus='virtio'" in daemon.xml("bus", live=True)
    assert "is better than it was" in ran.stdout
    user.run("undo", "last", "--restart")
    assert daemon.xml("bus") == before
    assert "bus='sata'" in daemon.xml("bus", live=True)


def test_a_chain_of_images_is_named_and_left(user: User, daemon: Libvirtd, make: Make) -> None:
    make("chain", f"{GOOD} iothread='1'", rest=THREAD)
    below = daemon.home / "chain.raw"
    for number in range(4):
        image = daemon.home / f"chain-{number}.qcow2"
        kind = "raw" if number == 0 else "qcow2"
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", below, "-F", kind, image], check=True)
        below = image
    xml = daemon.xml("chain").replace("type='raw'", "type='qcow2'").replace("chain.raw", below.name)
    daemon.define(xml)
    before = daemon.xml("chain")
    ran = user.run("fix", "chain", "--connect", daemon.uri, "--yes", *MEASURED)
    print(ran.stdout)
    assert "images below): it names no setting; `virsh blockcommit` or `blockpull`" in ran.stdout
    assert daemon.xml("chain") == before
