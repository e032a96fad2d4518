# SPDX-License-Identifier: Apache-2.0
"""What virtune lacks on this host is named with what brings it, and brought by the host's own package manager."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import User

from virtune.flows.doctor import ABILITIES
from virtune.packages import PACKAGES, installing

PROGRAMS = {program for one in ABILITIES for program in one.programs}
Without = Callable[..., str]


@pytest.fixture
def without(tmp_path: Path) -> Without:
    """Make a PATH with all programs of this host and of ours, but for some; of others there is a name alone."""

    def made(*missing: str, more: tuple[str, ...] = ()) -> str:
        place = tmp_path / "bin"
        place.mkdir()
        for folder in os.get_exec_path():
            for one in Path(folder).iterdir() if Path(folder).is_dir() else ():
                if one.name not in missing and not (place / one.name).is_symlink():
                    (place / one.name).symlink_to(one)
        for name in {*PROGRAMS, *more} - {*missing}:
            if not (place / name).exists():
                (place / name).touch(mode=0o755)
        return str(place)

    return made


def test_what_is_missing_is_named_with_its_command_and_installed_by_the_real_apt(
    user: User, without: Without
) -> None:
    place = without("virsh")
    said = user.run("host", "doctor", path=place).stdout
    assert "missing  libvirt's VMs: virsh; `apt-get install libvirt-clients`" in said
    assert said.count("missing") == 1
    done = user.run("host", "doctor", "--install", "--yes", path=place)
    command = "apt-get install --yes --no-install-recommends --no-remove libvirt-clients"
    assert f"runs: {'sudo ' * bool(os.geteuid())}{command}" in done.stdout
    assert "libvirt-clients is already the newest version" in done.stdout


def test_without_fio_nothing_can_be_measured(user: User, without: Without) -> None:
    said = user.run("host", "doctor", path=without("fio"), status=3).stdout
    assert "missing  measure this host's disks: fio; `apt-get install fio`" in said


def test_a_proxmox_node_keeps_its_own_qemu(user: User, without: Without) -> None:
    said = user.run("host", "doctor", path=without("qemu-storage-daemon", more=("pveversion",))).stdout
    assert "`apt-get install pve-qemu-kvm`" in said
    assert "qemu-system-common" not in said


def test_where_no_package_manager_is_known_no_command_is_said(user: User, without: Without) -> None:
    said = user.run("host", "doctor", "--install", path=without("virsh", "apt-get", "dnf", "zypper", "pacman")).stdout
    assert "missing  libvirt's VMs: virsh; no package manager of this host is known" in said
    assert "nothing is missing that a package of this host brings" in said


@pytest.mark.parametrize(
    ("manager", "words"),
    [
        ("dnf", "dnf install /usr/bin/fio /usr/bin/qemu-storage-daemon /usr/sbin/mkfs.xfs"),
        ("zypper", "zypper install /usr/bin/fio /usr/bin/qemu-storage-daemon /usr/sbin/mkfs.xfs"),
        ("pacman", "pacman -S fio qemu-img xfsprogs"),
    ],
)
def test_other_systems_have_their_own_words(manager: str, words: str) -> None:
    asked = ("fio", "qemu-storage-daemon", "mkfs.xfs", "a-program-that-nobody-packs")
    assert " ".join(installing(asked, manager)) == words


def test_every_program_that_is_looked_for_has_a_package() -> None:
    assert PROGRAMS - {"virtune-load"} <= PACKAGES.keys()
