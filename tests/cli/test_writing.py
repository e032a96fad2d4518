# SPDX-License-Identifier: Apache-2.0
"""Reports replace reports, and nothing that is no text: not the store, no image, no device."""

import os
import threading
from pathlib import Path

import pytest
from tests.conftest import User

from virtune.cli.common.result_output import require_writable, write_text
from virtune.model.errors import PreconditionError
from virtune.store.store import Store


def test_an_older_report_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    for text in ("long text" * 100, "short\n"):
        require_writable(path)
        write_text(path, text)
        assert path.read_text() == text


@pytest.mark.parametrize("content", [b"SQLite format 3\0more", b"QFI\xfb\0\0\0\3", bytes(512)])
def test_what_is_no_text_is_not_replaced(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_bytes(content)
    for act in (require_writable, lambda name: write_text(name, "report")):
        with pytest.raises(PreconditionError, match="is not a text file, so virtune does not replace it"):
            act(path)
    assert path.read_bytes() == content


def test_a_file_that_nobody_may_write_to_is_not_written_by_root_either(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text("kept")
    path.chmod(0o444)
    with pytest.raises(PreconditionError, match=r"cannot write .*kept"):
        write_text(path, "report")
    assert path.read_text() == "kept"


def test_streams_are_written_to_as_they_are(tmp_path: Path) -> None:
    write_text(Path("/dev/null"), "report")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()))
    require_writable(fifo)
    reader.start()
    write_text(fifo, "report")
    reader.join()
    assert read == ["report"]


def test_a_directory_or_a_place_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "report"):
        with pytest.raises(PreconditionError, match="cannot write"):
            require_writable(path)


@pytest.mark.real
def test_the_store_is_not_overwritten_by_its_own_report(user: User) -> None:
    user.run(
        "compare",
        "measure",
        "--rig",
        "metal",
        "--rounds",
        "1",
        "--seconds",
        "100ms",
        "--ramp",
        "0s",
        "--store",
        "st.db",
    )
    before = (user.home / "st.db").read_bytes()
    for option in ("--report", "--markdown"):
        ran = user.run("show", "last", "--store", "st.db", option, "st.db", status=3)
        assert "is not a text file, so virtune does not replace it" in ran.stderr
    assert (user.home / "st.db").read_bytes() == before
    with Store(user.home / "st.db") as store:
        assert len(store.list()) == 1


def test_no_verb_waits_for_ever_for_a_fifo(user: User) -> None:
    os.mkfifo(user.home / "fifo")
    started = [user.start(verb, "fifo") for verb in ("explain", "import", "compare")]
    for one in started:
        _, said = one.communicate(timeout=90)
        assert one.returncode == 2
        assert "it is a FIFO, and no program writes to it" in said
