# SPDX-License-Identifier: Apache-2.0
"""The two guidelines of the study `nvme-scaling` (Hitachi, about 2016) as data (`guidelines.json`): one for planning
VMs, one for VMs in operation.

Shares are relative to the drive's IOPS on bare metal, as its authors measured: 438k reads and 90k writes a second.
"""

import json
import pkgutil
import shlex
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from virtune.model.bottleneck import Fork, Guideline, Leaf

_ADVISE, _DISK = "virtune advise ", "@vda="


def _guideline(row: dict[str, Any]) -> Guideline:
    nodes: list[Fork | Leaf] = [
        *(Fork(**fork) for fork in row.pop("forks")),
        *(Leaf(**leaf) for leaf in row.pop("leaves")),
    ]
    return Guideline(**row, nodes={node.id: node for node in nodes})


CONFIGURATION, TUNING = map(_guideline, json.loads(pkgutil.get_data(__package__, "guidelines.json") or b""))


def tuning_for(*, uri: str, vm: str, disk: str) -> Guideline:
    """Return the tuning guideline with commands for this disk of a libvirt's domain; without a libvirt there are
    none.
    """
    where = shlex.join(["--connect", uri, "--domain", vm])

    def own(node: Fork | Leaf) -> Fork | Leaf:
        if isinstance(node, Fork) or not node.written.startswith(_ADVISE):
            return node
        asked = node.written.removeprefix(_ADVISE).replace(_DISK, f"@{disk}=")
        return replace(node, written=f"{_ADVISE}{where} {asked}" if uri else "")

    return replace(TUNING, nodes={name: own(node) for name, node in TUNING.nodes.items()})


_WORDS = {"yes": True, "no": False}


def requirements(words: Iterable[str]) -> dict[str, tuple[bool, str]]:
    """Read `scale-out=no` and the like; raises ValueError with a sentence for an unknown question or answer."""
    known = {fork.id for fork in CONFIGURATION.forks}
    found: dict[str, tuple[bool, str]] = {}
    for word in words:
        name, _, answer = word.strip().partition("=")
        if name not in known or answer not in _WORDS:
            right = ", ".join(f"{fork.id}=yes" for fork in CONFIGURATION.forks)
            raise ValueError(f"not a requirement: {word!r} (write {right}, or =no)")
        found[name] = (_WORDS[answer], "")
    return found


def given_answers(words: Iterable[str]) -> dict[str, tuple[bool, str]]:
    """Read what nobody can see of a VM's drives: `own=yes`, and `free=no` or the drive that is free.

    Raises ValueError with a sentence for anything else.
    """
    found: dict[str, tuple[bool, str]] = {}
    for word in words:
        name, _, answer = word.strip().partition("=")
        drive = name == "free" and answer.startswith("/dev/")
        if name not in ("own", "free") or not (answer in _WORDS or drive):
            raise ValueError(f"not an answer: {word!r} (write own=yes or own=no, free=/dev/NAME or free=no)")
        found[name] = (drive or _WORDS[answer], f"{answer}, as was said" if drive else "as was said")
    return found
