# SPDX-License-Identifier: Apache-2.0
"""`virtune host knobs`: the table, one knob, JSON, and what happens with a name that means nothing."""

import json

import pytest

from virtune.cli import run
from virtune.model.knobs import BY_ID, KNOBS

Capture = pytest.CaptureFixture[str]


def show(capsys: Capture, *words: str) -> str:
    assert run(["host", "knobs", *words]) == 0
    out, err = capsys.readouterr()
    assert not err
    return out


def test_the_table_names_every_knob_and_fits_100_columns(capsys: Capture) -> None:
    lines = show(capsys, "--no-ask").splitlines()
    named = {word for line in lines for word in line.split()[:2]}
    assert {knob.id for knob in KNOBS} <= named
    assert max(len(line.rstrip()) for line in lines) <= 100
    assert "QEMU block layer" in lines


def test_a_layer_is_shown_alone(capsys: Capture) -> None:
    out = show(capsys, "--layer", "medium", "--no-ask")
    assert "medium.lba_format" in out
    assert "disk.aio" not in out
    assert "knobs; * virtune can set it" in out


@pytest.mark.parametrize("name", ["disk.aio", "K45", "k45"])
def test_one_knob_is_shown_with_all_that_is_known(capsys: Capture, name: str) -> None:
    out = show(capsys, name, "--no-ask")
    for part in (
        "disk.aio",
        "K45",
        "threads | native | io_uring",
        "replug",
        "--set disk.aio=VALUE",
        "not asked: --no-ask",
    ):
        assert part in out
    for system in ("libvirt", "proxmox", "kubevirt", "openstack", "firecracker"):
        assert system in out
    assert "SQPOLL" in out
    assert all(len(line) <= 100 or len(line.split()) == 1 for line in out.splitlines()), "only an address runs over"
    sources = [source for line in BY_ID["disk.aio"].source for source in line.split() if "://" in source]
    assert sources
    assert all(source in out for source in sources), "an address is never broken"


def test_a_family_and_a_number_of_several_are_tables(capsys: Capture) -> None:
    assert "iothread.thread_pool_max" in show(capsys, "iothread", "--no-ask")
    assert "3 knobs;" in show(capsys, "K36", "--no-ask")


def test_json_holds_the_rows_as_they_are(capsys: Capture) -> None:
    document = json.loads(show(capsys, "--json", "--no-ask"))
    assert document["schema"] == "virtune/knobs/1"
    assert document["asked"] is False
    assert [row["id"] for row in document["knobs"]] == [knob.id for knob in KNOBS]
    aio = next(row for row in document["knobs"] if row["id"] == "disk.aio")
    assert aio["domain"] == {"kind": "choice", "values": ["threads", "native", "io_uring"]}
    assert aio["ask"] == {"kind": "AskSchema", "command": "blockdev-add", "member": "aio", "variant": "file"}
    assert aio["answers"] == []


@pytest.mark.parametrize("words", [("disk.aoi",), ("disk.aoi", "--json"), ("disk.aoi", "--layer", "block")])
def test_an_unknown_knob_is_one_sentence_and_a_hint(capsys: Capture, words: tuple[str, ...]) -> None:
    assert run(["host", "knobs", *words]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err == "error: there is no knob 'disk.aoi'\n\nhint: did you mean `disk.aio`?\n"


def test_an_unknown_layer_is_refused(capsys: Capture) -> None:
    assert run(["host", "knobs", "--layer", "cellar"]) == 2
    assert "'cellar' is not one of" in capsys.readouterr().err


def test_without_any_qemu_the_reason_is_shown(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))
    out = show(capsys, "disk.aio")
    assert "not asked: `qemu-storage-daemon` is not installed" in " ".join(out.split())
    assert "*?" in next(line for line in show(capsys, "disk").splitlines() if line.startswith("disk.aio ")).split()


@pytest.mark.real
def test_the_installed_qemu_is_asked(capsys: Capture) -> None:
    out = show(capsys, "disk.aio")
    assert "qemu-storage-daemon" in out
    assert "has threads, native" in " ".join(out.split())
    line = next(line for line in show(capsys, "--layer", "block").splitlines() if line.startswith("disk.aio "))
    assert line.split()[1] == "*+"
