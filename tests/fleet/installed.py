# SPDX-License-Identifier: Apache-2.0
"""What an install makes on the hosts of a test, which are on one machine: each has a place of its own."""

import json
import runpy
from pathlib import Path

from tests.fleet.machines import Machine, Machines

ANSIBLE = Path(__file__).parents[2] / "ansible"
ON_HOST = runpy.run_path(str(ANSIBLE / "roles" / "virtune" / "files" / "host.py"))
"""The role's program for what no module of Ansible does."""

MARK: str = ON_HOST["MARK"]


def places(fleet: Machines) -> list[str]:
    """The options of Ansible that say where each host has its virtune."""
    host = str(fleet.place / "{{ inventory_hostname }}")
    return ["-e", json.dumps({"virtune_place": f"{host}/opt", "virtune_command": f"{host}/bin/virtune"})]


def made(machine: Machine) -> list[str]:
    """What is there of an install."""
    place = machine.place / "opt"
    return sorted(one.name for one in place.iterdir()) if place.exists() else []


def older(machine: Machine) -> Path:
    """Make what an install of version 0.0.9 left; returns the command."""
    place, command = machine.place / "opt", machine.place / "bin" / "virtune"
    ON_HOST["make"](place, place / "command", "0.0.9")
    program = place / "0.0.9" / "bin" / "virtune"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho virtune, version 0.0.9\n")
    program.chmod(0o755)
    command.symlink_to(program)
    return command
