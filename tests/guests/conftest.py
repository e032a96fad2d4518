# SPDX-License-Identifier: Apache-2.0
"""A guest that is booted once for the tests of a module."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import SPAN

from virtune import shell
from virtune.bench.appliance.build import Appliance, appliance_for
from virtune.bench.appliance.sources import find_sources
from virtune.bench.qemu.machine import Accelerator
from virtune.bench.qemu.rig import GuestSession
from virtune.bench.scratch import Scratch
from virtune.model.event import Event
from virtune.model.stack import Disk

TCG = Accelerator(kvm=False, why="these tests run anywhere", tried=False)


@pytest.fixture(scope="session")
def appliance() -> Appliance:
    cache = shell.cache_directory()
    return appliance_for(find_sources(cache / "packages"), cache / "appliances")[0]


@pytest.fixture(scope="module")
def one_warden(request: pytest.FixtureRequest) -> Iterator[shell.Warden]:
    with shell.Warden(f"t{os.getpid()}-{abs(hash(request.node.name)) % 10**6}") as found:
        yield found


@pytest.fixture(scope="module")
def rig(appliance: Appliance, one_warden: shell.Warden) -> Iterator[GuestSession]:
    session = GuestSession(appliance, TCG, one_warden)
    yield session
    session.give_up()


@pytest.fixture(scope="module")
def image(scratch_directory: Path, one_warden: shell.Warden) -> Path:
    def say(event: Event) -> None:
        assert event is not None

    with Scratch(scratch_directory, span_bytes=SPAN, say=say) as scratch:
        return scratch.image_for(Disk(), one_warden)
