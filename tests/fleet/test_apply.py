# SPDX-License-Identifier: Apache-2.0
"""VMs of three hosts are changed in steps, a failure stops the rest, and one command puts all of it back."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.machines import Machines, machines
from tests.libvirtd import Libvirtd, libvirtd
from tests.published import complaints

from virtune.cli import run

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("fleet")]

Capture = pytest.CaptureFixture[str]
VM = """<domain type='qemu'><name>v{0}</name><memory unit='MiB'>64</memory>
<os><type arch='x86_64' machine='q35'>hvm</type></os><devices><disk type='file' device='disk'>
<driver name='qemu' type='raw' cache='unsafe'/><source file='/srv/v{0}.raw'/><target dev='vda' bus='virtio'/>
</disk></devices></domain>"""


@pytest.fixture(scope="module")
def libvirt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Libvirtd]:
    """One libvirtd, whose VMs stand for those of the hosts."""
    with libvirtd(tmp_path_factory.mktemp("libvirt")) as found:
        for name in ("a", "b", "c"):
            found.define(VM.format(name))
        yield found


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Three hosts."""
    with machines(tmp_path_factory.mktemp("apply"), "a", "b", "c") as found:
        yield found


def document(words: list[str], capfd: Capture, status: int = 0) -> dict[str, str]:
    capfd.readouterr()
    assert run([*words, "--json"]) == status
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert complaints("fleet-apply", found) == []
    return {one["name"]: one["state"] for one in found["hosts"]}


def test_a_failure_stops_the_rest_and_one_command_puts_all_of_it_back(
    fleet: Machines, libvirt: Libvirtd, tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    (tmp_path / "hosts").write_text("a\nc\nb\n")
    hosts = ["-i", str(tmp_path / "hosts"), "--ssh-config", str(fleet.config)]
    asked = ["fleet", "apply", *hosts, "--connect", libvirt.uri, "--set", "disk.cache@vda=none", "--batch", "1"]
    before = {name: libvirt.xml(f"v{name}") for name in "abc"}
    blocked = fleet.by_name["c"].place / "data" / "virtune" / "fleet-changes"
    blocked.parent.mkdir(parents=True)
    blocked.touch()  # c cannot keep a journal, and so changes nothing
    assert run([*asked, "a/va", "c/nosuch"]) == 2
    assert "not every host can be changed, so none is" in capfd.readouterr().err
    assert run([*asked, "a/va"]) == 2
    assert "cannot ask for confirmation" in capfd.readouterr().err
    assert {name: libvirt.xml(f"v{name}") for name in "abc"} == before
    found = document([*asked, "a/va", "b/vb", "c/vc", "--yes"], capfd, status=1)
    assert found == {"a": "changed", "c": "failed", "b": "untouched"}
    assert "cache='none'" in libvirt.xml("va")
    assert (libvirt.xml("vb"), libvirt.xml("vc")) == (before["b"], before["c"])
    blocked.unlink()
    assert document(["fleet", "undo"], capfd) == {"a": "undone", "b": "untouched", "c": "untouched"}
    assert {name: libvirt.xml(f"v{name}") for name in "abc"} == before


def test_what_is_misspelled_is_said_before_any_host_is_asked(fleet: Machines, capfd: Capture) -> None:
    asked = ["fleet", "apply", "--ssh-config", str(fleet.config)]
    for words, said in ((["z/v", "--template", "flash"], "no host 'z' is chosen"), (["a/v", "--set", "no"], "no")):
        assert run([*asked, *words]) == 2
        assert said in capfd.readouterr().err
    assert run(["fleet", "undo", "nosuch"]) == 2
    assert "no change 'nosuch' of a fleet" in capfd.readouterr().err
