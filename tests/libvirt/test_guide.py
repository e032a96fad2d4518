# SPDX-License-Identifier: Apache-2.0
"""The guide's commands that change a VM of libvirt, on a real one."""

from collections.abc import Callable

import pytest
from tests.conftest import User
from tests.guide import PAGES, steps
from tests.libvirtd import Libvirtd

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("libvirt")]


def test_a_vm_is_audited_changed_and_put_back_as_the_guide_says(
    user: User, daemon: Libvirtd, make: Callable[..., str]
) -> None:
    make("web1", "cache='unsafe'")
    before = daemon.xml("web1")
    wanted = [step for page in PAGES for step in steps(page) if step.needs_libvirt]
    undo = ("apply", "undo")
    assert [step.words[0] if step.words[:2] != undo else "undo" for step in wanted] == ["audit", "apply", "undo"]
    for step in wanted:
        words = [daemon.uri if word == "qemu:///system" else word for word in step.words]
        user.run(*words, exactly=True, status=step.status)
        assert ("cache='none'" in daemon.xml("web1")) == (step.words[0] == "apply" and step.words[:2] != undo)
    assert daemon.xml("web1") == before
