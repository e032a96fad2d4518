# SPDX-License-Identifier: Apache-2.0
"""What virsh is given to read lies in no directory, so nothing of it is there after a kill."""

import os
import subprocess
import tempfile
from pathlib import Path

from virtune.virsh import as_file


def test_another_program_reads_it_and_it_is_no_file() -> None:
    before = {*Path(tempfile.gettempdir()).iterdir()}
    with as_file(b"<a password='x'/>") as first, as_file("<ü/>") as second:
        done = subprocess.run(["cat", first, second, second], capture_output=True, check=True)
        assert done.stdout == b"<a password='x'/>" + "<ü/><ü/>".encode()
        assert not any(one.name.startswith("virtune-") for one in {*Path(tempfile.gettempdir()).iterdir()} - before)
        assert "memfd:" in str(Path(first).readlink())
    assert not os.path.exists(first)
