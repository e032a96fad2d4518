# SPDX-License-Identifier: Apache-2.0
"""Whatever judges kept studies judges them by today's method: figures of an older one are derived again first."""

import contextlib
import gzip
import json
import sqlite3
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.store.kept import COMPARE, KEPT

from virtune.advise.audit import audit
from virtune.dialects.libvirt.domain import read_domain
from virtune.flows.run.study import finished_result
from virtune.flows.stored.earlier_studies import Past
from virtune.flows.stored.show import by_todays_method, current, last_check
from virtune.model.finding import HostView, Subject
from virtune.model.measurement import METHOD
from virtune.probe.cpu import cpu_facts
from virtune.store.store import Store

DOMAIN = b"""<domain type='kvm'><name>g</name><vcpu>2</vcpu><iothreads>1</iothreads><devices>
<disk type='block' device='disk'><driver name='qemu' type='raw' cache='writeback' io='threads' discard='unmap'
  iothread='1'/><source dev='/dev/vg/g'/><target dev='vda' bus='virtio'/></disk></devices></domain>"""


WRONG = """update measurements set measurement = json_set(measurement, '$.values[0][1]', 99999.0 + trial_id)
where trial_id in (select id from trials where study_id = ? and arm = 'slow')"""
SAID = (0.343, 0.0051, 22.9)
"""What the raw captures of that study say: the slow arm in relation to the free one, and its interval."""

AGAIN = (
    "insert into trials"
    " select null, study_id, number, 2, round, arm, workload, ended, failure, in_force from trials where id = 1;"
    "insert into captures select (select max(id) from trials), name, content from captures where trial_id = 1;"
    "insert into measurements"
    " select (select max(id) from trials), method, measurement from measurements where trial_id = 1"
)


def changed(path: Path, statement: str, *values: object) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A store whose older method took the slow arm for the fast one, as its raw captures do not."""
    path = tmp_path / "before.sqlite"
    path.write_bytes(gzip.decompress(KEPT.read_bytes()))
    changed(path, WRONG, COMPARE)
    return path


def test_a_study_that_is_resumed_says_what_its_captures_say(place: Path) -> None:
    with Store(place) as store:
        _, result = finished_result(store, COMPARE)
        (verdict,) = result.verdicts
        assert verdict.ratio is not None
        assert verdict.ratio.estimate == pytest.approx(SAID[0], rel=0.01)
        assert result == current(store, COMPARE)[1]


def test_every_attempt_is_derived_anew_and_kept(place: Path) -> None:
    for statement in AGAIN.split(";"):
        changed(place, statement)
    with Store(place) as store:
        record = by_todays_method(store, COMPARE)
        assert len(record.attempts) == len(record.trials) + 1
        assert {one.measurement.method for one in record.attempts if one.measurement is not None} == {METHOD}
        assert record.methods == (METHOD,)
        assert store.get(COMPARE).attempts == record.attempts


def test_the_last_check_is_judged_by_todays_method(place: Path) -> None:
    changed(
        place, "update studies set kind = 'check', study = json_set(study, '$.kind', 'check') where id = ?", COMPARE
    )
    with Store(place) as store:
        study = store.get(COMPARE).study
        later = (datetime.fromisoformat(study.created) + timedelta(hours=1)).isoformat()
        checked = last_check(store, replace(study, id="later", created=later))
        assert checked is not None
        assert (checked.low, checked.high) == pytest.approx(SAID[1:], rel=0.01)


def said(place: Path) -> str:
    subject = Subject(domain=read_domain(DOMAIN), host=HostView(kernel=(6, 1)))
    past = Past(place)
    return next(" | ".join(past.says(one, subject)) for one in audit(subject) if one.rule.id == "R18")


def test_an_audit_quotes_the_figures_of_todays_method(place: Path) -> None:
    changed(place, "update studies set facts = ?", json.dumps({"host": {"cpu": {"model": cpu_facts().model}}}))
    for where, value in (("arms[0].stack.disk.cache", "writeback"), ("arms[1].stack.disk.throttle_iops", None)):
        changed(place, "update studies set study = json_set(study, ?, ?) where id = ?", f"$.{where}", value, COMPARE)
    assert said(place).startswith("measured on this host: undecided, IOPS -65.7 %")
    assert "method" not in said(place)
    changed(place, "delete from captures where name = 'fio.json'")
    changed(place, "delete from measurements where method = ?", METHOD)
    assert "figures of method 0)" in said(place), "what cannot be derived anew says by which method it was"
