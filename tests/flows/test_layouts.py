# SPDX-License-Identifier: Apache-2.0
"""Images of several files as arms: their settings are verified, their data is kept, and nothing of them is left."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CALM, User, eventually, marked_processes

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("layouts")]

QCOW2 = ("--set", "disk.format=qcow2")
SHORT = ("--rounds", "1", "--seconds", "100ms", "--ramp", "0", "-q", "--json")


@pytest.fixture
def own(user: User, tmp_path: Path) -> User:
    """A user with a scratch directory of its own."""
    user.scratch = tmp_path / "own"
    return user


def verified(document: Any, setting: str) -> dict[str, Any]:
    """What was found of a setting, by arm; all that was asked for agrees."""
    checks = [(arm["name"], one) for arm in document["arms"] for one in arm["in_force"]]
    assert not [one for _, one in checks if one["agrees"] is False]
    return {name: one["found"] for name, one in checks if one["setting"] == setting}


def test_depths_are_compared_and_their_images_go_with_the_others(own: User) -> None:
    words = (*QCOW2, "--vary", "disk.backing_depth=0,1,4", *CALM, *SHORT)
    found = verified(own.run("compare", *words).json(), "disk.backing_depth")
    assert found == {"backing_depth=0": "0", "backing_depth=1": "1", "backing_depth=4": "4"}
    assert "backing_depth=4" in own.run("show", "last", "--verbose").stdout
    report = own.home / "report.txt"
    own.run("show", "last", "--report", str(report))
    again = " --arm backing_depth=4:disk.format=qcow2,disk.backing_depth=4 "
    assert again in report.read_text()
    assert len([*own.scratch.glob("*-layer?.qcow2")]) == 1 + 4
    own.run("host", "clean", "--scratch", str(own.scratch), "--images")
    assert [*own.scratch.iterdir()] == []


@pytest.mark.parametrize(
    ("knob", "value"), [("disk.backing_depth", "3"), ("disk.data_file", "on"), ("disk.encryption", "luks")]
)
def test_what_is_written_through_a_layout_is_read_outside_of_it(knob: str, value: str, own: User) -> None:
    words = (*QCOW2, "--set", f"{knob}={value}", "--workload", "randwrite-4k", "--check-data", *CALM, *SHORT)
    document = own.run("compare", "measure", "--rig", "vhost-user", *words).json()
    assert verified(document, "data") == {document["arms"][0]["name"]: "kept"}
    (check,) = [one for one in document["arms"][0]["in_force"] if one["setting"] == "data"]
    assert "then read from the image outside of it" in check["proof"]
    assert {*verified(document, knob).values()} == {value}


@pytest.mark.parametrize("engine", ["threads", "native", "io_uring"])
@pytest.mark.parametrize("load", ["randread-4k", "randwrite-4k"])
def test_the_engine_of_an_encrypted_image_is_seen_beside_what_encrypts_it(engine: str, load: str, own: User) -> None:
    words = ("--set", f"disk.aio={engine}", "--set", "disk.encryption=luks", "--workload", load)
    document = own.run("compare", "measure", *QCOW2, *words, *CALM, *SHORT, "--seconds", "1").json()
    assert {*verified(document, "disk.aio").values()} == {engine}


def test_that_writes_copy_from_below_only_once_is_said(own: User) -> None:
    words = ("--vary", "disk.backing_depth=0,2", "--workload", "randwrite-4k", "--dry-run")
    assert "only the first write to a cluster copies it" in own.run("compare", *QCOW2, *words, *CALM).stdout
    words = ("--vary", "disk.backing_depth=0,2", "--workload", "randread-4k", "--dry-run")
    assert "only the first write" not in own.run("compare", *QCOW2, *words, *CALM).stdout


def test_what_a_killed_run_made_of_a_chain_is_found_and_goes(own: User) -> None:
    process = own.start("compare", *QCOW2, "--vary", "disk.backing_depth=4,8", *CALM, "--seconds", "1", "-q")
    assert eventually(lambda: any(own.scratch.glob("*-layer3.qcow2")))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=90)
    assert eventually(lambda: marked_processes() == [])
    own.run("host", "clean", "--scratch", str(own.scratch), "--images")
    assert [*own.scratch.iterdir()] == []
