# SPDX-License-Identifier: Apache-2.0
"""The Ansible role, by the real `ansible-playbook`, and inventories by the real `ansible-inventory`."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.machines import Machines, machines
from tests.fleet.wheels import make_wheelhouse

from virtune import __version__
from virtune.cli import run
from virtune.fleet.wheelhouse import own_wheel

pytestmark = [
    pytest.mark.real,
    pytest.mark.long(always="an inventory as Ansible prints it is read in each run (test_inventory.py)"),
    pytest.mark.xdist_group("fleet"),
]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
INVENTORY = """\
hypervisors:
  hosts:
    kvm1:
      ansible_host: {host}
      virtune_labels: {{rack: 7}}
  vars:
    ansible_ssh_common_args: -F {config}
    ansible_python_interpreter: /usr/bin/python3
    ansible_user: root
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Machines]:
    """A host without a virtune."""
    place = tmp_path / "machines"
    place.mkdir()
    with machines(place, "a") as found:
        (found.by_name["a"].place / "bin" / "virtune").unlink()
        yield found


def wheels(place: Path) -> Path:
    """The archive that the role sends."""
    folder = place / "wheels"
    folder.mkdir()
    name, content = own_wheel()
    (make_wheelhouse(folder) / name).write_bytes(content)
    with tarfile.open(place / "wheels.tar", "w") as packed:
        packed.add(folder, ".")
    return place / "wheels.tar"


def played(inventory: Path, place: Path, **variables: str) -> dict[str, Any]:
    """Run the playbook, and return its last line for the host."""
    words = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
    env = {**os.environ, "ANSIBLE_HOME": str(place / "home")}
    env |= {"ANSIBLE_ROLES_PATH": str(ROOT / "ansible" / "roles"), "LC_ALL": "C.UTF-8"}
    command = [str(BIN / "ansible-playbook"), "-i", str(inventory), str(ROOT / "ansible" / "install.yml"), *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
    recap = next((line for line in done.stdout.splitlines() if line.startswith("kvm1") and "ok=" in line), "")
    counts = {name: int(number) for name, _, number in (one.partition("=") for one in recap.split()[2:])}
    return {"status": done.returncode, "said": done.stdout + done.stderr, **counts}


def test_the_role_installs_once_and_its_inventory_reaches_the_host(
    fleet: Machines, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = fleet.by_name["a"].place
    inventory = tmp_path / "production.yml"
    inventory.write_text(INVENTORY.format(host="a", config=fleet.config))
    asked = {
        "virtune_version": __version__,
        "virtune_wheels": str(wheels(tmp_path)),
        "virtune_place": str(host / "opt"),
        "virtune_command": str(host / "bin" / "virtune"),
    }
    first = played(inventory, tmp_path, **asked)
    assert (first["status"], first["failed"]) == (0, 0), first["said"]
    again = played(inventory, tmp_path, **asked)
    assert (again["status"], again["changed"]) == (0, 0), again["said"]
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    hosts = ["--ansible", str(inventory), "--label", "rack=7", "--ssh-config", str(fleet.config)]
    assert run(["fleet", "inventory", *hosts, "--json"]) == 0
    (one,) = json.loads(capfd.readouterr().out)["hosts"]
    assert (one["name"], one["labels"]["group.hypervisors"]) == ("kvm1", "yes")
    assert run(["fleet", "probe", *hosts]) == 0
    assert "1 host answered" in capfd.readouterr().out
    (host / "bin" / "virtune").unlink()
    shutil.copy("/bin/true", host / "bin" / "virtune")
    theirs = played(inventory, tmp_path, **asked)
    assert theirs["failed"] == 1
    assert (host / "bin" / "virtune").read_bytes() == Path("/bin/true").read_bytes()
