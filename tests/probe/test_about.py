# SPDX-License-Identifier: Apache-2.0
"""What installed programs say of themselves is asked once, and again of another file."""

from pathlib import Path

import pytest

from virtune.model.errors import VirtuneError
from virtune.probe.programs import said_of_itself


def program(path: Path, says: str, status: int = 0) -> str:
    path.write_text(f"#!/bin/sh\necho asked >>{path}.log\necho {says} $1\nexit {status}\n")
    path.chmod(0o755)
    return str(path)


def asked(path: Path) -> int:
    return len(Path(f"{path}.log").read_text().splitlines())


def test_a_program_is_asked_once_for_each_option_and_again_when_it_was_replaced(tmp_path: Path) -> None:
    path = Path(program(tmp_path / "fio", "one"))
    for _ in range(2):
        assert said_of_itself(str(path), "--version") == "one --version\n"
        assert said_of_itself(str(path), "--help") == "one --help\n"
    assert asked(path) == 2
    program(path, "another")
    assert said_of_itself(str(path), "--version") == "another --version\n"
    assert asked(path) == 3


def test_what_failed_is_asked_again(tmp_path: Path) -> None:
    path = program(tmp_path / "fio", "no", status=7)
    for _ in range(2):
        with pytest.raises(VirtuneError, match="exit 7"):
            said_of_itself(path, "--version")
    assert asked(Path(path)) == 2
    with pytest.raises(VirtuneError, match="is not installed"):
        said_of_itself(str(tmp_path / "none"), "--version")
