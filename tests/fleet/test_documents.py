# SPDX-License-Identifier: Apache-2.0
"""What hosts answer is read with care: a document that is none is that host's failure; what differs is found."""

import json
from typing import Any

import pytest

from virtune.analyse.fleet.differ import differences, flat
from virtune.fleet.ssh import HostError
from virtune.flows.fleet.ask import read_document
from virtune.flows.fleet.audit import audits_of
from virtune.model.fleet import FleetHost, HostAnswer, Unreached
from virtune.report.text.fleet.hosts import audit_lines, names

FINDING: dict[str, Any] = {
    "rule": "R1",
    "at": "vda",
    "line": 3,
    "seen": "x",
    "advice": "y",
    "takes": None,
    "risk": "none",
}
DOMAIN: dict[str, Any] = {"origin": "/vms/x.xml", "domain": "x", "uuid": None, "findings": [], "not_looked_at": []}


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "[]", "{}", '{"schema": "virtune/audit/2"}', "[" * 100_000, '{"schema": ["virtune/audit/1"]}'],
)
def test_what_is_not_the_document_is_refused(text: str) -> None:
    with pytest.raises(HostError, match="is not the document virtune/audit/1"):
        read_document(text, "virtune/audit/1")


def answer(name: str, document: Any) -> HostAnswer:
    return HostAnswer(host=FleetHost(name=name, target=name), calls_itself=name, document=document)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"domains": 7, "unread": []},
        {"domains": [7], "unread": []},
        {"domains": [DOMAIN | {"domain": 7}], "unread": []},
        {"domains": [DOMAIN | {"findings": [FINDING | {"rule": "R9999"}]}], "unread": []},
        {"domains": [DOMAIN | {"findings": [FINDING | {"risk": "any"}]}], "unread": []},
        {"domains": [DOMAIN | {"findings": [FINDING | {"line": "x"}]}], "unread": []},
        {"domains": [DOMAIN | {"not_audited": 7}], "unread": []},
        {"domains": [DOMAIN | {"not_looked_at": [{"unknown": "x", "rules": [7]}]}], "unread": []},
        {"domains": [], "unread": [{"origin": "x"}]},
    ],
    ids=lambda one: json.dumps(one)[:40],
)
def test_a_broken_audit_is_its_host_s_failure(document: Any) -> None:
    good = answer("good", {"domains": [DOMAIN], "unread": []})
    audits, lost = audits_of([answer("bad", document), good, Unreached(host=good.host, because="down")])
    assert [one.host.name for one in audits] == ["good"]
    assert [one.host.name for one in lost] == ["bad", "good"]
    assert "its audit has" in lost[0].because


def test_a_host_s_text_does_nothing_to_the_terminal() -> None:
    nasty = answer(
        "a", {"domains": [DOMAIN | {"domain": "\x1b[31mred"}], "unread": [{"origin": "\x07", "because": "\r"}]}
    )
    audits, lost = audits_of([nasty])
    assert all(line.isprintable() for line in audit_lines(audits, lost) if line)


def test_facts_are_flat_and_lists_go_by_the_names_in_them() -> None:
    facts = {
        "kernel": {"release": "6.1", "aio_used": 5, "arguments": ["quiet", "nosmt"]},
        "disks": [{"device": {"name": "vdb", "queues": 4}}, {"device": {"name": "vda", "rotational": False}}],
        "cpu": {"governors": None, "numa": [{"node": 0, "cpus": "0-1"}]},
    }
    assert flat(facts) == {
        "kernel.release": "6.1",
        "kernel.arguments": "quiet,nosmt",
        "disks.vdb.device.name": "vdb",
        "disks.vdb.device.queues": "4",
        "disks.vda.device.name": "vda",
        "disks.vda.device.rotational": "no",
        "cpu.numa.0.node": "0",
        "cpu.numa.0.cpus": "0-1",
    }
    assert flat(None) == {}


def test_what_differs_is_said_with_the_hosts_and_what_names_a_host_is_not() -> None:
    alike = {"kernel": "6.1", "qemu": "7.2"}
    fleet = {f"h{number}": {**alike, "serial": str(number)} for number in range(4)}
    fleet["h2"]["kernel"] = "5.10"
    del fleet["h1"]["qemu"]
    fleet["h3"]["qemu"] = "8.0"
    assert [(one.key, one.values) for one in differences(fleet)] == [
        ("kernel", (("6.1", ("h0", "h1", "h3")), ("5.10", ("h2",)))),
        ("qemu", (("7.2", ("h0", "h2")), ("8.0", ("h3",)), ("absent", ("h1",)))),
    ]
    assert [one.key for one in differences({"a": {"x": "1"}, "b": {"x": "2"}})] == ["x"]
    assert differences({"a": alike}) == ()


def test_many_hosts_are_named_in_one_line() -> None:
    assert names(("a", "b")) == "a, b"
    assert names([f"h{number}" for number in range(40)]) == "h0, h1, h2, h3, h4 and 35 more"
