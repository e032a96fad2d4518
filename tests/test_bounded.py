# SPDX-License-Identifier: Apache-2.0
"""What other programs wrote is read up to a limit, and only from files."""

import os
from pathlib import Path

import pytest

from virtune.bounded import read_bounded


def test_no_more_is_read_than_asked_for_and_from_the_end_on_request(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"0123456789")
    assert read_bounded(file, 100) == b"0123456789"
    assert read_bounded(file, 4) == b"0123"
    assert read_bounded(file, 4, from_end=True) == b"6789"
    assert read_bounded(file, 40, from_end=True) == b"0123456789"


@pytest.mark.parametrize("name", ["zero", "null", "fifo", "link", "directory", "nothing"])
def test_what_is_no_file_is_not_read(name: str, tmp_path: Path) -> None:
    place = tmp_path / name
    match name:
        case "zero" | "null":
            place.symlink_to(f"/dev/{name}")
        case "fifo":
            os.mkfifo(place)
        case "link":
            (tmp_path / "file").write_text("somebody else's")
            place.symlink_to("file")
        case "directory":
            place.mkdir()
    with pytest.raises(OSError, match=r"egular file|symbolic links|irectory"):
        read_bounded(place, 100)
