# SPDX-License-Identifier: Apache-2.0
"""libvirt's own schema takes the captured domains, and takes them still once they were altered."""

import shutil
import subprocess
from pathlib import Path

import pytest

from virtune.advise.audit import audit
from virtune.advise.placement import flash
from virtune.dialects.libvirt.alter import LIBVIRT
from virtune.dialects.libvirt.domain import read_domain
from virtune.model.finding import Subject

pytestmark = pytest.mark.real

DOMAINS = Path(__file__).parents[1] / "captures" / "domains"
SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
NEWER = {"emulated-nvme", "kubevirt-supplemental-pool", "qemu-commandline", "status-of-a-running-one"}
"""What libvirt 9.0 does not know yet (NVMe disks, mapped queues, polling), and a wrapper that is no domain."""


def valid(files: list[Path]) -> set[str]:
    if shutil.which("xmllint") is None or not SCHEMA.exists():
        pytest.skip("xmllint or libvirt's schema is missing: `tools/setup dev` brings them")
    words = ["xmllint", "--noout", "--relaxng", str(SCHEMA), *map(str, files)]
    said = subprocess.run(words, capture_output=True, text=True, timeout=120).stderr
    return {path.stem for path in files if f"{path} validates" in said}


def test_the_captured_domains_and_all_their_alterations_are_domains(tmp_path: Path) -> None:
    files = sorted(DOMAINS.glob("*.xml"))
    assert valid(files) >= {path.stem for path in files} - NEWER
    altered = []
    for path in files:
        if path.stem in NEWER:
            continue
        text = path.read_bytes()
        subject = Subject(domain=read_domain(text))
        mended = [turn for finding in audit(subject) for turn in finding.seen.turns]
        for name, turns in (("flash", flash(subject).turns), ("mended", mended)):
            altered.append(tmp_path / f"{path.stem}-{name}.xml")
            altered[-1].write_bytes(LIBVIRT.alter(text, *turns))
    assert valid(altered) == {path.stem for path in altered}
