# SPDX-License-Identifier: Apache-2.0
"""The page and the document of a probe: within 100 columns, nothing unknown passed over in silence."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.probe.machines import CAPTURES, unpack

from virtune.analyse.study.host_rules import judge_host
from virtune.model.facts import HostFacts
from virtune.probe.host import host_facts
from virtune.report.json.host import PROBE, probe_document
from virtune.report.pages.probe import render

MACHINES = sorted(path.parent.name for path in CAPTURES.glob("*/tree.json"))


def page(facts: HostFacts) -> str:
    out = io.StringIO()
    Console(file=out, width=100, highlight=False).print(render(facts, judge_host(facts)))
    return out.getvalue()


@pytest.mark.parametrize("machine", [*MACHINES, "nothing"])
def test_every_machine_fits_the_page_and_the_document(machine: str, tmp_path: Path) -> None:
    root = unpack(machine, tmp_path) if machine in MACHINES else tmp_path
    facts = host_facts("/var/lib/images", root)
    text = page(facts)
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "Unknown(" not in text
    document = json.loads(json.dumps(probe_document(facts, judge_host(facts))))
    assert document["schema"] == PROBE
    for path, because in document["unknown"].items():
        assert because
        assert follow(document["host"], path) is None


def follow(value: Any, path: str) -> Any:
    for step in path.replace("[", ".").replace("]", "").split("."):
        value = value[int(step)] if step.isdecimal() else value[step]
    return value


def test_what_is_not_known_is_named_on_the_page(tmp_path: Path) -> None:
    text = page(host_facts("/tmp/x", unpack("two-sockets", tmp_path)))
    assert "container unknown" in text
    assert "unknown: a recorded machine cannot be tried" in text
    assert "governor performance, powersave, driver intel_pstate, turbo on" in text
    assert "not shown: loop0, loop1, loop2" in text


def test_the_page_says_that_a_guest_was_not_booted(tmp_path: Path) -> None:
    facts = host_facts(tmp_path)
    text = page(facts)
    assert facts.kvm.creates_vm is not True or "`virtune host guest build`" in text


def test_a_machine_without_findings_is_told_so(tmp_path: Path) -> None:
    out = io.StringIO()
    Console(file=out, width=100).print(render(host_facts("/x", unpack("small-vm", tmp_path)), ()))
    assert "no problem found" in out.getvalue()
