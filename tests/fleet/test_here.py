# SPDX-License-Identifier: Apache-2.0
"""A task of a fleet on this host, where it does not come to running."""

import os
from pathlib import Path

import pytest

from virtune.flows.fleet.here import begin, place_of
from virtune.model.errors import PreconditionError


def test_a_task_that_is_begun_again_forgets_the_process_that_carried_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number may be another process's by now, and `stop` ends whatever has it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    place = place_of("run-0")
    place.log.mkdir(parents=True)  # so that it cannot start
    place.carrier.write_text(str(os.getpid()))
    with pytest.raises(PreconditionError, match="cannot begin run-0"):
        begin("run-0", ["check"])
    assert place.carrier.read_text().strip() == ""
