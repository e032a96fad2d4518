# SPDX-License-Identifier: Apache-2.0
"""The probe: reads the facts of this host and warns of those that disturb measurements."""

from dataclasses import replace
from pathlib import Path

from virtune import shell
from virtune.analyse.study.host_rules import judge_host
from virtune.bench.qemu.accelerator import last_tried
from virtune.model.facts import HostFacts
from virtune.model.remark import Remark
from virtune.probe.host import host_facts


def probe(scratch: Path) -> tuple[HostFacts, tuple[Remark, ...]]:
    """Return the facts of this host, and the warnings on them, the most severe first."""
    facts = host_facts(scratch)
    tried = last_tried(shell.cache_directory())
    if tried is not None:
        facts = replace(facts, kvm=replace(facts.kvm, boots_guest=tried.kvm, boot=tried.why))
    return facts, judge_host(facts)
