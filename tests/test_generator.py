# SPDX-License-Identifier: Apache-2.0
"""Which virtune-load is taken: the one that an installation keeps fresh, before one that was once built by hand."""

import sys
from pathlib import Path

import pytest

from virtune.model.errors import MissingToolError
from virtune.shell import GENERATOR, GENERATOR_PLACES, find_generator


def test_the_one_beside_python_comes_before_an_old_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert GENERATOR_PLACES[0] == Path(sys.executable).parent
    places = [tmp_path / "installed", tmp_path / "built"]
    for place in places:
        place.mkdir()
        (place / GENERATOR).write_text("#!/bin/sh\n")
        (place / GENERATOR).chmod(0o755)
    assert find_generator(places) == str(places[0] / GENERATOR)


def test_the_hint_names_what_builds_it_beside_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError) as caught:
        find_generator([])
    assert "`pip install ./loadgen`" in (caught.value.hint or "")
