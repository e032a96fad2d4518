# SPDX-License-Identifier: Apache-2.0
"""Into a real guest, by its console's ports and by its agent: words, bytes and deadlines."""

import time
from collections.abc import Iterator

import pytest
from tests.guests.agent_contract import AgentContract

from virtune import shell
from virtune.bench.appliance.build import appliance_for
from virtune.bench.appliance.sources import find_sources
from virtune.bench.guest.agent import AgentGuest, GuestError
from virtune.bench.qemu.machine import Vm, running

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]


@pytest.fixture(scope="module")
def vm(one_warden: shell.Warden) -> Iterator[Vm]:
    """A guest that can be reached both ways."""
    cache = shell.cache_directory()
    appliance, _ = appliance_for(find_sources(cache / "packages", agent=True), cache / "appliances")
    with running(appliance, one_warden, kvm=False) as found:
        yield found


def test_words_arrive_as_they_were_meant(vm: Vm) -> None:
    for word in (
        "plain",
        "a b",
        "$HOME `id` $(id)",
        "quo'te\"s",
        "back\\slash\\n",
        "new\nline",
        "tab\t",
        "ünï",
        "-n",
        "",
    ):
        output = vm.guest.run(["printf", "%s", word], timeout_seconds=120)
        assert (output.status, output.stdout, output.stderr) == (0, word.encode(), b"")


def test_status_and_both_streams_come_back(vm: Vm) -> None:
    output = vm.guest.run(["sh", "-c", "echo out; echo err >&2; exit 7"], timeout_seconds=120)
    assert (output.status, output.stdout, output.stderr) == (7, b"out\n", b"err\n")
    assert vm.guest.run(["no-such-program"], timeout_seconds=120).status == 127


def test_files_go_in_and_out_byte_for_byte(vm: Vm) -> None:
    content = bytes(range(256)) * 64 + b"=1 0\n!1\n<1\n"
    vm.guest.put("/run/bytes", content, timeout_seconds=120)
    assert vm.guest.get("/run/bytes", timeout_seconds=120) == content
    with pytest.raises(GuestError, match="ended with status 1"):
        vm.guest.get("/run/none", timeout_seconds=120)


def test_a_late_answer_is_known_as_late(vm: Vm) -> None:
    with pytest.raises(GuestError, match="did not answer within"):
        vm.guest.run(["sh", "-c", "sleep 1; echo late"], timeout_seconds=0.2)
    assert vm.guest.run(["echo", "own"], timeout_seconds=120).stdout == b"own\n"


def test_a_program_runs_beside_looks_and_is_ended_with_all_it_started(vm: Vm) -> None:
    process = vm.guest.start(["sh", "-c", "sleep 1000 & sleep 1000"], timeout_seconds=120)
    assert process.wait(0.1) is None
    assert vm.guest.run(["kill", "-0", str(process.pid)], timeout_seconds=120).status == 0
    process.end("TERM")
    ended = process.wait(0)
    assert ended is not None
    assert ended.status == 128 + 15
    assert b"1000" not in vm.guest.run(["ps"], timeout_seconds=120).stdout


def test_one_that_is_stopped_ends_too(vm: Vm) -> None:
    process = vm.guest.start(["sleep", "1000"], timeout_seconds=120)
    vm.guest.run(["kill", "-STOP", str(process.pid)], timeout_seconds=120)
    begun = time.monotonic()
    process.end("INT")
    assert process.wait(0) is not None
    assert time.monotonic() - begun < 60


def test_it_is_the_hosts_fio(vm: Vm) -> None:
    output = vm.guest.run(["fio", "--version"], timeout_seconds=120)
    assert output.stdout.startswith(b"fio-")
    assert output.stderr == b""


@pytest.fixture
def guest(vm: Vm) -> AgentGuest:
    assert vm.agent is not None
    vm.agent.ping(timeout_seconds=120)
    return vm.agent


class TestTheAgentOverItsSocket(AgentContract):
    """What the way over a socket of QEMU's promises."""
