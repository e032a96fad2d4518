# SPDX-License-Identifier: Apache-2.0
"""Hosts of a fleet that say what they were told: an `ssh` that runs commands here, with each host's own programs.

What travels, and over which connection, `machines` tests with real sshds; here it is what becomes of an answer.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from virtune import __version__
from virtune.model.fleet import FleetHost, TaskProgress, TaskState

from virtune.flows.fleet.here import line_of  # isort: skip

SSH = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
    -o | -F | -p) shift 2 ;;
    -S) socket=$2; shift 2 ;;
    -M | -N) master=1; shift ;;
    --) shift; break ;;
    *) shift ;;
  esac
done
host=$(dirname "$0")/hosts/$1
[ -d "$host" ] || { echo "ssh: Could not resolve hostname $1: Name or service not known" >&2; exit 255; }
[ -n "$master" ] && { : > "$socket"; exec sleep 600; }
PATH=$host:$PATH exec sh -c "$2"
"""

VIRTUNE = """#!/bin/sh
here=$(dirname "$0")
echo "$*" >> "$here/calls"
case $1 in --version) what=version ;; fleet) what=${4#--}; what=${what:-state} ;; *) what=$1 ;; esac
case $what in
  follow) while read -r line; do echo "$line"; sleep 0.25; done < "$here/follow" ;;
  *) cat "$here/$what" 2> /dev/null ;;
esac
cat "$here/$what.err" >&2 2> /dev/null
exit $(cat "$here/$what.code" 2> /dev/null || echo 0)
"""


@dataclass
class ToldHosts:
    """The hosts below a directory, whose `ssh` must come first on the PATH."""

    place: Path

    def add(self, name: str, *, shares: str = "", **files: str) -> FleetHost:
        """Make a host; `files` are what its programs print, by what they are asked."""
        there = self.place / "hosts" / name
        there.mkdir(parents=True)
        programs = {self.place / "ssh": SSH, there / "virtune": VIRTUNE}
        programs[there / "uname"] = f"#!/bin/sh\necho {files.pop('calls_itself', name)}\n"
        for path, text in programs.items():
            path.write_text(text)
            path.chmod(0o755)
        for what, text in {"version": f"virtune {__version__}\n", "estimate": line(), **files}.items():
            self.tell(name, what, text)
        return FleetHost(name=name, target=name, labels=(("shares", shares),) if shares else ())

    def tell(self, name: str, what: str, text: str) -> None:
        """Let a host print this when it is asked for that; `*.code` is how that ends, `*.err` what it says then."""
        (self.place / "hosts" / name / what.replace("_", ".")).write_text(text)

    def calls(self, name: str) -> list[str]:
        """How virtune was called there."""
        return (self.place / "hosts" / name / "calls").read_text().splitlines()

    @property
    def path(self) -> str:
        return f"{self.place}:{os.environ['PATH']}"


def line(state: TaskState = TaskState.WAITING, **more: object) -> str:
    """How far a task is, as its host says it."""
    return line_of(TaskProgress(state=state, **more)) + "\n"  # type: ignore[arg-type]


def told_here(place: Path, monkeypatch: pytest.MonkeyPatch) -> ToldHosts:
    """Have such hosts, and a data directory of their own, below a directory."""
    hosts = ToldHosts(place / "told")
    monkeypatch.setenv("XDG_DATA_HOME", str(place / "data"))
    monkeypatch.setenv("PATH", hosts.path)
    return hosts
