# SPDX-License-Identifier: Apache-2.0
"""Documents keep to their published schemas, and a document that was changed does not."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tests.analyse.recordings import RESULTS, recorded
from tests.probe.machines import CAPTURES, unpack
from tests.published import complaints, invalid_variants, validator
from tests.report.records import as_read, record, study

from virtune.advise.audit import audit
from virtune.analyse.study.host_rules import judge_host
from virtune.analyse.study.summarise import summarise
from virtune.analyse.trial.explain import beside
from virtune.cli.explain import explained as explained_result
from virtune.dialects.libvirt.domain import read_domain
from virtune.fio.results import read_result
from virtune.model.domain import SettingChange
from virtune.model.errors import ReadError
from virtune.model.evidence import Listed, StudyRecord
from virtune.model.finding import Advice, LeftAlone, NewFinding, ProcessDisk, Running, Subject, Unread
from virtune.model.knobs import KNOBS
from virtune.model.reason import Reason, because
from virtune.probe.host import host_facts
from virtune.report.json.audit import advice_document, advised_domain, domains_document
from virtune.report.json.explain import explained_document
from virtune.report.json.host import probe_document
from virtune.report.json.knobs import knobs_document
from virtune.report.json.listing import listing_document
from virtune.report.json.result import result_document
from virtune.report.pages.audit import domains_page
from virtune.report.pages.explain import Explained

MACHINES = sorted(path.parent.name for path in CAPTURES.glob("*/tree.json"))


def result(kept: StudyRecord) -> Any:
    return as_read(result_document(summarise(kept), kept))


def test_a_result_with_a_verdict_a_failure_and_facts_keeps_to_the_schema(tmp_path: Path) -> None:
    facts = host_facts("/var/tmp/virtune", unpack("small-vm", tmp_path))
    kept = record(8, facts=json.dumps(probe_document(facts, judge_host(facts))), failing=True)
    found = result(kept)
    assert complaints("result", found) == []
    assert found["comparisons"][0]["verdict"] == "better"
    assert found["facts"]["host"]["cpu"]["online"] == 2
    assert found["arms"][1]["rounds"][-1]["failure"] == "fio went away"


def test_a_study_that_has_just_begun_keeps_to_the_schema() -> None:
    kept = replace(record(1), trials=())
    found = result(kept)
    assert complaints("result", found) == []
    assert found["facts"] is None


def test_whatever_is_changed_in_a_result_is_noticed() -> None:
    found, judge = result(record(1, failing=True)), validator("result")
    assert judge.is_valid(found)
    missed = [what for what, changed in invalid_variants(found) if judge.is_valid(changed)]
    assert missed == []


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("comparisons", 0, "verdict"), "faster"),
        (("comparisons", 0, "verdict"), "better"),  # without a ratio nothing is better
        (("comparisons", 0, "metric"), "iops.least"),
        (("arms", 0, "rounds", 0, "failure"), "it failed, and measured all the same"),
        (("arms", 0, "in_force", 1, "agrees"), True),  # what could not be seen cannot agree
        (("arms", 0, "in_force", 0, "agrees"), None),
        (("arms", 0, "stack", "disk", "aio"), "posix"),
        (("arms", 0, "settings"), {"disk.aoi": "native"}),
        (("study", "created"), "yesterday"),
        (("study", "confidence"), 1.5),
        (("schema",), "virtune/result/0"),
    ],
)
def test_words_that_mean_nothing_are_refused(place: tuple[str | int, ...], value: object) -> None:
    found = result(record(1))
    assert complaints("result", found) == []
    inner = found
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    assert complaints("result", found) != []


@pytest.mark.parametrize("machine", MACHINES)
def test_the_facts_of_every_recorded_machine_keep_to_the_schema(machine: str, tmp_path: Path) -> None:
    facts = host_facts("/var/tmp/virtune", unpack(machine, tmp_path))
    assert complaints("probe", as_read(probe_document(facts, judge_host(facts)))) == []


def test_whatever_is_changed_in_facts_is_noticed(tmp_path: Path) -> None:
    facts = host_facts("/var/tmp/virtune", unpack("small-vm", tmp_path))
    found, judge = as_read(probe_document(facts, judge_host(facts))), validator("probe")
    missed = [what for what, changed in invalid_variants(found) if judge.is_valid(changed)]
    assert missed == []


def explained(name: str) -> Explained:
    return explained_result(name, read_result(recorded(name)))


def test_every_recorded_fio_result_keeps_to_the_schema() -> None:
    judge = validator("explain")
    for name in RESULTS:
        try:
            one = explained(name)
        except ReadError:  # what cannot be read has no document
            continue
        together = beside(one.result, one.result)
        found = as_read(explained_document([one, one], [together] if together else []))
        assert [f"{name} {error.json_path}: {error.message}" for error in judge.iter_errors(found)] == []


def test_whatever_is_changed_in_an_explanation_is_noticed() -> None:
    one = explained(RESULTS[0])
    found, judge = as_read(explained_document([one])), validator("explain")
    assert judge.is_valid(found)
    # a metric that is missing was not measured, so one fewer is as good a document
    fewer = ("results.0.metrics: no", "results.0.parts.0.metrics: no")
    changes = [(what, changed) for what, changed in invalid_variants(found) if not what.startswith(fewer)]
    assert [what for what, changed in changes if judge.is_valid(changed)] == []


def test_knobs_and_lists_keep_to_their_schemas_and_changes_are_noticed() -> None:
    listed = [Listed(study=study(1), finished=False, done=1, failed=1)]
    documents = {
        "knobs": as_read(knobs_document(KNOBS[:12], {}, asked=False)),
        "list": as_read(listing_document(listed)),
    }
    assert complaints("knobs", as_read(knobs_document(KNOBS, {}, asked=False))) == []
    for name, found in documents.items():
        assert complaints(name, found) == []
        judge = validator(name)
        assert [what for what, changed in invalid_variants(found) if judge.is_valid(changed)] == []


def test_domains_and_advice_keep_to_their_schemas_and_changes_are_noticed() -> None:
    domain = read_domain((CAPTURES / "domains" / "vagrant-cache-unsafe.xml").read_bytes())
    shown = ProcessDisk(target="vda", direct=True, aio="io_uring", no_flush=False)
    running = Running(state="running", reason="booted", live=domain, pid=7, rings=1, contexts=0, disks=(shown,))
    runs, lost = Subject(domain=domain, running=running), Unread(origin="/dev/null", because="it is empty")
    turns = (SettingChange(knob="disk.cache", at="vda", value="none"), SettingChange(knob="x.y", value=None))
    left = (
        LeftAlone(why=because(Reason.SPINNING_DISK), at="vda"),
        LeftAlone(why=because(Reason.FREE_CPUS_UNKNOWN)),
    )
    warnings = (NewFinding(rule="R14", at="vda", text="w"),)
    advice = Advice(turns=turns, effects=(), after=b"", diff="-a", left=left, commands=("c",), warnings=warnings)
    advised = advised_domain("a.xml", replace(domain, uuid=None), advice)
    documents = {
        "domains": as_read(domains_document([("a.xml", runs, audit(replace(runs, running=None)))], [lost])),
        "advice": as_read(advice_document([advised])),
    }
    assert documents["domains"]["domains"][0]["running"]["in_force"] == [asdict(shown)]
    page = [*domains_page([("a.xml", runs, ()), ("b.xml", replace(runs, running=None), ())], [lost])]
    assert f"{domain.name}  running (booted), pid 7  (a.xml)" in page
    assert f"{domain.name}  not running  (b.xml)" in page
    assert page[-2:] == ["not read: /dev/null: it is empty", "2 domains; 1 not read"]
    assert documents["domains"]["domains"][0]["findings"]
    for name, found in documents.items():
        assert complaints(name, found) == []
        judge = validator(name)
        missed = [what for what, changed in invalid_variants(found) if judge.is_valid(changed)]
        assert {what.rpartition(".")[2] for what in missed} <= {"limits: stranger"}, "a limit may have any name"
