# SPDX-License-Identifier: Apache-2.0
"""What hosts answer is read with care: a document that is none is that host's failure; what differs is found."""

import contextlib
import copy
import json
import random
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from virtune.advise.audit import rules
from virtune.analyse.facts import differences, flat
from virtune.apply.journal import Journal, Step
from virtune.fleet.ssh import HostError
from virtune.flows.fleet.apply import entries_in, entries_text
from virtune.flows.fleet.ask import audits_of, read_document
from virtune.flows.fleet.here import progress_in
from virtune.flows.fleet.results import listed_id
from virtune.flows.fleet.run import left_seconds
from virtune.model.fleet import FleetHost, FleetRun, FleetTask, HostAnswer, Unreached
from virtune.report.json.fleet import audit_document, probe_document
from virtune.report.pages.fleet import audit_lines, names, probe_lines, run_lines

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


def answer(name: str, document: Any) -> HostAnswer[Any]:
    return HostAnswer(host=FleetHost(name=name, target=name), calls_itself=name, said=document)


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
    assert flat({"disks": [deep(3000)]}) == {}


def test_what_differs_is_said_with_the_hosts_and_what_names_a_host_is_not() -> None:
    alike = {"kernel": "6.1", "qemu": "7.2"}
    fleet = {f"h{number}": {**alike, "serial": str(number)} for number in range(4)}
    fleet["h2"]["kernel"] = "5.10"
    del fleet["h1"]["qemu"]
    fleet["h3"]["qemu"] = "8.0"
    assert [(one.key, [(each.value, each.hosts) for each in one.values]) for one in differences(fleet)] == [
        ("kernel", [("6.1", ("h0", "h1", "h3")), ("5.10", ("h2",))]),
        ("qemu", [("7.2", ("h0", "h2")), ("8.0", ("h3",)), ("absent", ("h1",))]),
    ]
    assert [one.key for one in differences({"a": {"x": "1"}, "b": {"x": "2"}})] == ["x"]
    assert differences({"a": alike}) == ()


def test_what_only_one_host_has_is_one_difference_and_a_setting_keeps_its_value() -> None:
    disk = {f"disks.vda.device.{name}": name for name in ("model", "queues", "scheduler")}
    loop = {f"disks.loop3.device.{name}": name for name in ("model", "queues", "scheduler", "rotational")}
    settings = {"setting.machine.emulator": "/q", "setting.machine.cpu": "host"}
    found = differences({"a": disk, "b": {**disk, **loop, **settings, "disks.vda.alone": "1"}})
    assert {one.key: one.values[1 if one.values[0].value == "absent" else 0].value for one in found} == {
        "disks.loop3": "present", "disks.vda.alone": "1", "setting.machine.cpu": "host",
        "setting.machine.emulator": "/q",
    }  # fmt: skip
    one_fact = {**disk, "kvm.nested": "yes"}
    assert [one.key for one in differences({"a": disk, "b": one_fact})] == ["kvm.nested"], "its value tells more"


def test_many_hosts_are_named_in_one_line() -> None:
    assert names(("a", "b")) == "a, b"
    assert names([f"h{number}" for number in range(40)]) == "h0, h1, h2, h3, h4 and 35 more"


def deep(depth: int) -> Any:
    found: Any = "x"
    for _ in range(depth):
        found = {"device": found}
    return found


_NUMBERS = (7, -1, 10**30, 1e308, float("nan"), float("inf"))
_TEXTS = ("", "x", "--help", "a\0b", "\ud800", "\x1b[31m", "9" * 5000, "2024\u0662")
JUNK: tuple[Any, ...] = (*_NUMBERS, *_TEXTS, None, True, [], {}, [[]], [None], {"x": {}}, [deep(900)], deep(900))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, inner in (
        value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    ):
        yield from places(inner, (*path, key))


def altered(document: Any, chance: random.Random) -> Any:
    """A document with something else in one place, or without it."""
    found = copy.deepcopy(document)
    *where, last = chance.choice([one for one in places(found) if one and one != ("schema",)])
    inside = found
    for key in where:
        inside = inside[key]
    if isinstance(inside, dict) and chance.random() < 0.1:
        del inside[last]
    else:
        inside[last] = chance.choice(JUNK)
    return found


KNOWN = FINDING | {"rule": next(iter(rules())).id}


def audited(found: Mapping[str, Any]) -> None:
    good = answer("good", {"domains": [DOMAIN | {"findings": [KNOWN]}], "unread": []})
    audits, lost = audits_of([answer("bad", found), good])
    assert "good" in {one.host.name for one in audits}
    json.dumps(audit_document(audits, lost))
    "\n".join(audit_lines(audits, lost)).encode()


def probed(found: Mapping[str, Any]) -> None:
    facts = [answer(name, flat(one.get("host"))) for name, one in (("a", found), ("b", PROBED))]
    differing = differences({one.host.name: one.said for one in facts})
    json.dumps(probe_document(facts, differing, []))
    "\n".join(probe_lines(facts, differing, [])).encode()


def told(found: Mapping[str, Any]) -> None:
    task = FleetTask(name="t", host=FleetHost(name="a", target="a"), part=1)
    run = FleetRun(
        name="r", created="2026-01-01T00:00:00+00:00", words=("measure",), tasks=(task,), at_once=1, shares=""
    )
    said = {"t": progress_in(json.dumps(found))}
    "\n".join(run_lines(run, said, left_seconds(run, said))).encode()


def listed(found: Mapping[str, Any]) -> None:
    studies = found.get("studies")
    for one in studies if isinstance(studies, list) else ():
        shlex.join([listed_id(one)])


def undone(found: Mapping[str, Any]) -> None:
    left, _ = entries_in(json.dumps(found))
    assert not {"\0", "-"} & {one[:1] for one in left}


PROBED = {"schema": "x", "host": {"kernel": {"release": "6.1"}, "disks": [{"device": {"name": "vda", "queues": 4}}],
                                  "arguments": ["a"]}}  # fmt: skip
ANSWERS: list[tuple[Callable[[Any], object], Any]] = [
    (audited, {"domains": [DOMAIN | {"findings": [KNOWN], "not_looked_at": [{"unknown": "x", "rules": ["R1"]}]}],
               "unread": [{"origin": "x", "because": "y"}]}),
    (probed, PROBED),
    (told, {"state": "running", "study": "s", "done": 3, "total": 8, "left_seconds": 3.5, "verdict": "v",
            "code": None, "said": "x", "hint": "y"}),
    (listed, {"schema": "x", "studies": [{"id": "20260101-000000-aaaa"}], "damaged": []}),
    (undone, {"schema": "virtune/journal/1", "entries": [{"id": "20260101-000000-aaaa", "undone": False}],
              "damaged": ["x"]}),
]  # fmt: skip


@pytest.mark.parametrize(("reads", "good"), ANSWERS, ids=[one.__name__ for one, _ in ANSWERS])
def test_an_answer_of_another_shape_is_its_host_s_failure(reads: Callable[[Any], object], good: Any) -> None:
    reads(good)
    for seed in range(400):
        bad = altered(good, random.Random(seed))
        with contextlib.suppress(HostError):
            reads(bad)


def test_of_a_journal_what_is_undone_is_told_by_its_step_and_not_by_names(tmp_path: Path) -> None:
    """A VM may be called as a step is."""
    journal, left = Journal(tmp_path), []
    for name in ("web  undone", "undone", "a  committed"):
        entry = journal.begin(name="20260101-000000", uri="test:///default", uuid="u", domain=name, turns=(), live=(),
                              before=b"<a/>", after=b"<b/>")  # fmt: skip
        journal.step(entry, Step.COMMITTED)
        left.append(entry.id)
    journal.step(journal.entries()[-1], Step.UNDONE)
    assert entries_in(entries_text(journal)) == (left[:-1], [])
