# SPDX-License-Identifier: Apache-2.0
"""The probe: reads the facts of this host and says what in them stands in the way of measuring."""

from pathlib import Path

from virtune.analyse.host import judge_host
from virtune.model.facts import HostFacts
from virtune.model.remark import Remark
from virtune.probe.host import host_facts


def probe(scratch: Path) -> tuple[HostFacts, tuple[Remark, ...]]:
    """Return the facts of this host, and what was found in them, gravest first."""
    facts = host_facts(scratch)
    return facts, judge_host(facts)
