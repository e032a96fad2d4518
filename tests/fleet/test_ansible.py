# SPDX-License-Identifier: Apache-2.0
"""The Ansible collection, by the real `ansible-playbook`, and inventories by the real `ansible-inventory`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fleet.installed import ANSIBLE, places
from tests.fleet.machines import Machines, machines
from tests.fleet.wheels import make_wheelhouse
from tests.libvirtd import libvirtd
from tests.published import complaints

from virtune import __version__
from virtune.cli import run

pytestmark = [
    pytest.mark.real,
    pytest.mark.long(
        always="the role is run by `fleet install` (test_chain.py), an inventory read (test_inventory.py)"
    ),
    pytest.mark.xdist_group("fleet"),
]

BIN = Path(sys.executable).parent
Capture = pytest.CaptureFixture[str]
VAULTED = """\
hypervisors:
  hosts:
    kvm1: {{ansible_host: a, virtune_labels: {{rack: 7}}, virtune_vms: [va]}}
    kvm2: {{ansible_host: b, virtune_vms: [nosuch]}}
    kvm3: {{ansible_host: c, virtune_vms: [vc]}}
  vars:
    ansible_ssh_common_args: -F {config}
    ansible_python_interpreter: /usr/bin/python3
    ansible_user: root
"""


VM = """<domain type='qemu'><name>{}</name><memory unit='MiB'>64</memory>
<os><type arch='x86_64' machine='q35'>hvm</type></os><devices><disk type='file' device='disk'>
<driver name='qemu' type='raw' cache='unsafe'/><source file='/srv/{}.raw'/><target dev='vda' bus='virtio'/>
</disk></devices></domain>"""


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    """Three hosts of an inventory that is in a vault, and the collection where Ansible finds it."""
    place, home = tmp_path / "machines", tmp_path / "collections" / "ansible_collections" / "virtune"
    place.mkdir()
    home.mkdir(parents=True)
    (home / "fleet").symlink_to(ANSIBLE)
    known = {"ANSIBLE_HOME": tmp_path / "home", "ANSIBLE_COLLECTIONS_PATH": tmp_path / "collections"}
    for name, text in {**known, "XDG_CACHE_HOME": tmp_path, "LC_ALL": "C.UTF-8"}.items():
        monkeypatch.setenv(name, str(text))
    with machines(place, "a", "b", "c") as found:
        (tmp_path / "password").write_text("secret\n")
        (tmp_path / "production.yml").write_text(VAULTED.format(config=found.config))
        played("ansible-vault", "encrypt", *vault(tmp_path), str(tmp_path / "production.yml"))
        yield found


def vault(place: Path) -> list[str]:
    return ["--vault-password-file", str(place / "password")]


def played(program: str, *words: str, status: int = 0) -> str:
    done = subprocess.run([str(BIN / program), *words], capture_output=True, text=True, timeout=280)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_an_inventory_in_a_vault_is_installed_to_and_reached(fleet: Machines, tmp_path: Path, capfd: Capture) -> None:
    (wheels := tmp_path / "wheels").mkdir()
    make_wheelhouse(wheels)
    for machine in fleet.by_name.values():
        (machine.place / "bin" / "virtune").unlink()
    told = [*vault(tmp_path), *places(fleet)]
    hosts = ["--ansible", str(tmp_path / "production.yml"), "--label", "rack=7"]
    assert run(["fleet", "install", *hosts, "--wheelhouse", str(wheels), "--json", "--", *told]) == 0
    found = json.loads(capfd.readouterr().out)
    assert complaints("fleet-install", found) == []
    assert [(one["name"], one["state"], one["version"]) for one in found["hosts"]] == [
        ("kvm1", "installed", __version__)
    ]
    asked = ["-i", str(tmp_path / "production.yml"), "--limit", "kvm1", "virtune.fleet.install", *told]
    again = played("ansible-playbook", *asked, "-e", f"virtune_version={__version__}")
    (recap,) = (line for line in again.splitlines() if line.startswith("kvm1") and "ok=" in line)
    assert "changed=0" in recap


def test_a_study_is_begun_once_and_waited_for(fleet: Machines, tmp_path: Path) -> None:
    hosts = ["-i", str(tmp_path / "production.yml"), *vault(tmp_path)]
    words = ["measure", "--rig", "simulated", "--rounds", "2"]
    asked = [*hosts, "--limit", "kvm1", "virtune.fleet.run", "-e", "virtune_task=once"]
    first = played("ansible-playbook", *asked, "-e", json.dumps({"virtune_words": words}))
    assert "changed=1" in first
    again = played("ansible-playbook", *asked, "-e", json.dumps({"virtune_words": words}))
    assert "changed=0" in again
    wrong = played("ansible-playbook", *asked, "-e", json.dumps({"virtune_words": ["probe"]}), "-e",
                   "virtune_task=other", status=2)  # fmt: skip
    assert "a fleet runs studies, and 'probe' makes none" in wrong


def test_a_change_goes_on_until_a_host_fails(fleet: Machines, tmp_path: Path) -> None:
    with libvirtd(tmp_path) as libvirt:
        for name in ("va", "vc"):
            libvirt.define(VM.format(name, name))
        before = libvirt.xml("vc")
        change = {"virtune_change": ["--set", "disk.cache@vda=none"], "virtune_connect": libvirt.uri}
        asked = [
            "-i",
            str(tmp_path / "production.yml"),
            *vault(tmp_path),
            "virtune.fleet.apply",
            "-e",
            json.dumps(change),
        ]
        assert "changed=1" in played("ansible-playbook", *asked, "--limit", "kvm1")
        assert "cache='none'" in libvirt.xml("va")
        stopped = played("ansible-playbook", *asked, "--limit", "kvm2,kvm3", status=2)
        recap = {line.split()[0]: line for line in stopped.splitlines() if " ok=" in line}
        assert "failed=1" in recap["kvm2"]
        assert "changed=0" in recap["kvm3"]
        assert libvirt.xml("vc") == before
