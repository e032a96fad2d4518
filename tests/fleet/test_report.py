# SPDX-License-Identifier: Apache-2.0
"""The report of gathered studies: the mean, the next host, a planted odd host with its fact, and refusals."""

import gzip
import json
import math
import re
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import pytest
from tests.published import complaints
from tests.store.kept import COMPARE, KEPT

from virtune import __version__
from virtune.analyse.fleet import SUMMARY, estimate_of, summary_of
from virtune.analyse.study.summarise import summarise
from virtune.cli import run
from virtune.flows.stored.show import by_todays_method
from virtune.model.evidence import Check, InForce, StudyRecord
from virtune.model.measurement import METHOD
from virtune.report.words import percent_text
from virtune.store.store import Store

pytestmark = pytest.mark.xdist_group("fleet report")  # what is made for the module is made once

Capture = pytest.CaptureFixture[str]
HOSTS = 8


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> StudyRecord:
    """One simulated comparison of at most eight rounds."""
    place = tmp_path_factory.mktemp("one")
    words = [
        "--arm",
        "a:rig=simulated",
        "--arm",
        "b:rig=simulated,disk.aio=io_uring",
        "--rounds",
        "8",
        "--quiet",
        "--seed",
        "1",
    ]
    assert run(["compare", *words, "--scratch", str(place / "s"), "--store", str(place / "store.sqlite")]) == 0
    with Store(place / "store.sqlite") as store:
        return store.get(store.find("last"))


def host(record: StudyRecord, number: int, factor: float, governor: str) -> StudyRecord:
    """The same study on another host: its figures times a factor, with noise of its own."""
    chance = Random(number)

    def moved(value: float) -> float:
        return value * factor * math.exp(chance.gauss(0, 0.02))

    checks = (Check(setting="disk.scheduler", asked="none", found="none" if governor == "performance" else "bfq",
                    proof="sysfs"),)  # fmt: skip
    trials = tuple(
        replace(one, in_force=InForce(checks=checks), measurement=replace(one.measurement, values=tuple(
            (name, moved(value) if name == "iops" else value) for name, value in one.measurement.values)))
        for one in record.trials if one.measurement is not None
    )  # fmt: skip
    facts = json.dumps({"host": {"cpu": {"governors": [governor]}, "kernel": {"release": "6.1"}, "serial": number}})
    return replace(record, trials=trials, attempts=trials, facts=facts)


def keep(record: StudyRecord, path: Path) -> Path:
    with Store(path) as store:
        store.add_whole(record, [() for _ in record.trials])
    return path


@pytest.fixture(scope="module")
def store_of(measured: StudyRecord, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, float, str], Path]:
    """Make the store of a host, once."""
    place = tmp_path_factory.mktemp("stores")

    @cache
    def made(number: int, factor: float, governor: str) -> Path:
        return keep(host(measured, number, factor, governor), place / f"{number}-{factor}-{governor}.sqlite")

    return made


@pytest.fixture
def folder(measured: StudyRecord, store_of: Callable[[int, float, str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Make the stores of hosts; `slow` is how fast the last one is, and `last` what becomes of its study."""

    def make(slow: float = 1.0, last: Callable[[StudyRecord], StudyRecord] | None = None, hosts: int = HOSTS) -> Path:
        for number in range(hosts):
            odd, path = number == hosts - 1, tmp_path / f"h{number}.sqlite"
            what = (number, slow, "powersave") if odd else (number, 1.0, "performance")
            if odd and last is not None:
                keep(last(host(measured, *what)), path)
            else:
                shutil.copy(store_of(*what), path)
        return tmp_path

    return make


def document(folder: Path, capfd: Capture, *words: str) -> dict[str, Any]:
    capfd.readouterr()
    assert run(["fleet", "report", "--from", str(folder), "--json", *words]) == 0
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert complaints("fleet-report", found) == []
    return found


def test_one_store_for_all_hosts_says_what_their_own_stores_say(
    folder: Callable[..., Path], capfd: Capture, tmp_path: Path
) -> None:
    place, together = folder(slow=0.75), tmp_path / "together" / "all.sqlite"
    for number in range(HOSTS):
        with Store(place / f"h{number}.sqlite") as one, Store(together, host=f"h{number}") as every:
            kept = one.get(one.find("last"))
            every.add_whole(kept, [() for _ in kept.trials])
    apart = document(place, capfd)
    assert run(["fleet", "report", "--store", str(together), "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == apart
    assert run(["fleet", "report", "--store", str(together), "--from", str(place)]) == 2
    assert "two places for the studies" in capfd.readouterr().err
    assert run(["compare", "resume", "h1/", "--store", str(together)]) == 2
    assert "was measured on the host h1" in capfd.readouterr().err


def test_a_slow_host_is_named_with_the_fact_that_it_has_alone(folder: Callable[..., Path], capfd: Capture) -> None:
    place = folder(slow=0.75)
    found = document(place, capfd)
    assert [one["host"] for one in found["levels"][0]["hosts"] if one["odd"]] == ["h7"]
    assert found["levels"][0]["ranks"][-1]["host"] == "h7"
    assert [(one["key"], one["value"], one["usual"]) for one in found["levels"][0]["traits"]] == [
        ("cpu.governors", "powersave", "performance"),
        ("setting.disk.scheduler", "bfq", "none"),
    ]
    assert not any(one["odd"] for one in found["effects"][0]["hosts"]), "a slow host gains as the others do"
    assert run(["fleet", "report", "--from", str(place)]) == 0
    said = capfd.readouterr().out
    assert "odd: h7 is -2" in said
    assert "cpu.governors = powersave on 1 of 1 odd and 0 of 7 others; usual: performance" in said
    assert "simulated: invented figures" in said


def test_the_page_says_first_what_the_report_says_and_has_its_pictures(
    folder: Callable[..., Path], tmp_path: Path, capfd: Capture
) -> None:
    place, page = folder(slow=0.75), tmp_path / "fleet.html"
    assert run(["fleet", "report", "--from", str(place), "--html", str(page)]) == 0
    said, text = capfd.readouterr().out, page.read_text()
    verdicts = text[text.index('id="verdicts"') : text.index('id="settings"')]
    assert "b against a (" in verdicts
    assert "better on 8 of 8 hosts" in verdicts
    assert "the next host: +" in verdicts
    odd = next(line.strip() for line in said.splitlines() if "odd: h7 is" in line)
    assert odd in verdicts
    assert [text.count(f'<figure id="{name}') for name in ("forest-", "funnel-", "ranks-")] == [1, 1, 1]
    assert "cpu.governors" in text[text.index('id="tables"') :]
    assert "simulated: invented figures" in text
    assert "virtune fleet run -i hosts.txt compare --arm" in text
    assert run(["fleet", "report", "--from", str(place), "--html", str(tmp_path / "no" / "x.html")]) == 3
    assert "cannot write" in capfd.readouterr().err


def limits_of(said: str, place: str) -> tuple[float, float]:
    """Read the limits of a host from its row of the table of ranks, as ratios."""
    row = next(line for line in said.splitlines() if line.split()[:1] == [place])
    ends = re.findall(r"([+-][\d,.]+) %", row)[-2:]
    low, high = (1 + float(one.replace(",", "")) / 100 for one in ends)
    return low, high


def test_limits_are_ratios_in_the_text_on_the_page_and_in_its_pictures(
    folder: Callable[..., Path], tmp_path: Path, capfd: Capture
) -> None:
    place, page = folder(), tmp_path / "fleet.html"
    assert run(["fleet", "report", "--from", str(place), "--html", str(page)]) == 0
    said, text = capfd.readouterr().out, page.read_text()
    for number in range(HOSTS):
        low, high = limits_of(said, f"h{number}")
        assert low < 1 < high
        assert low * high == pytest.approx(1, abs=0.002), "as far down as up"
        shown = re.escape(f"{percent_text(low)} % to {percent_text(high)} %")
        assert len(re.findall(shown, text)) >= 2, "in the table of ranks and in that of the funnel"


def test_a_host_of_which_nothing_is_known_has_limits_that_can_be_read(
    folder: Callable[..., Path], tmp_path: Path, capfd: Capture
) -> None:
    place, page = folder(slow=0.001, hosts=3), tmp_path / "fleet.html"
    assert run(["fleet", "report", "--from", str(place), "--html", str(page)]) == 0
    said, text = capfd.readouterr().out, page.read_text()
    assert said.count("x10 or more, either way") == 2, "two hosts whose others differ by a factor of a thousand"
    assert text.count("x10 or more, either way") == 4, "in the table of ranks and in that of the funnel"
    assert "A line that ends at the edge goes on." in text
    assert not re.search(r"\d,\d+(\.\d)? %|e\+\d", said), "percentages that nobody can read"


def planted(record: StudyRecord) -> float:
    """The ratio b / a of the one study from which all hosts are made: what their mean has to find."""
    logs: dict[str, list[float]] = {"a": [], "b": []}
    for one in record.trials:
        assert one.measurement is not None
        logs[one.trial.arm].append(math.log(dict(one.measurement.values)["iops"]))
    return math.exp(fmean(logs["b"]) - fmean(logs["a"]))


def test_the_mean_and_the_next_host_hold_the_planted_effect(
    measured: StudyRecord, folder: Callable[..., Path], capfd: Capture
) -> None:
    found = document(folder(), capfd)
    (effect,) = found["effects"]
    assert [one["verdict"] for one in effect["verdicts"]] == ["better"] * HOSTS
    pooled = effect["pooled"]
    assert pooled["low"] < planted(measured) < pooled["high"]
    assert pooled["next_low"] < pooled["low"] < pooled["high"] < pooled["next_high"]
    assert not any(one["odd"] for one in found["levels"][0]["hosts"])


@pytest.mark.parametrize(("factor", "mark"), [(0.75, "▼"), (1.35, "▲")])
def test_the_page_says_first_what_an_odd_host_has_and_whether_it_is_behind(
    folder: Callable[..., Path], tmp_path: Path, factor: float, mark: str
) -> None:
    page = tmp_path / "fleet.html"
    assert run(["fleet", "report", "--from", str(folder(slow=factor)), "--html", str(page)]) == 0
    text = page.read_text()
    verdicts = text[text.index('id="verdicts"') : text.index("<figure")]
    assert "cpu.governors = powersave on 1 of 1 odd and 0 of 7 others; usual: performance" in verdicts
    (shown,) = re.findall(r"([▲▼■○])[^▲▼■○]*level of a", verdicts)
    assert shown == mark
    hosts = re.search(r"mean over hosts.*?the next host.*?>h\d<", text[text.index("<figure") :], re.DOTALL)
    assert hosts is not None, "the answer stands above the hosts"


def test_a_host_without_studies_is_named_with_those_that_have_some(
    folder: Callable[..., Path], capfd: Capture
) -> None:
    place = folder(hosts=3)
    assert run(["fleet", "report", "--from", str(place), "--host", "h0", "--host", "h9"]) == 2
    said = capfd.readouterr().err
    assert "no study of 'h9' is in" in said
    assert "hosts there: h0, h1, h2" in said


def test_hosts_measured_too_far_apart_keep_their_effects_and_get_no_ranks(
    folder: Callable[..., Path], capfd: Capture
) -> None:
    def earlier(one: StudyRecord) -> StudyRecord:
        return replace(one, study=replace(one.study, created="2020-01-01T00:00:00+00:00"))

    found = document(folder(last=earlier), capfd)
    (level,) = found["levels"]
    assert "cannot be compared" in level["refused"]
    assert level["ranks"] == []
    assert found["effects"][0]["pooled"]["hosts"] == HOSTS


def test_one_host_by_two_names_is_refused(folder: Callable[..., Path], capfd: Capture) -> None:
    place = folder()
    (place / "twin.sqlite").write_bytes((place / "h3.sqlite").read_bytes())
    assert run(["fleet", "report", "--from", str(place)]) == 2
    assert "h3 and twin hold the same study" in capfd.readouterr().err


def test_only_the_same_question_is_put_together(folder: Callable[..., Path], capfd: Capture) -> None:
    def other(one: StudyRecord) -> StudyRecord:
        return replace(one, study=replace(one.study, seconds=one.study.seconds * 2))

    place = folder(last=other)
    found = document(place, capfd)
    assert "h7" not in found["hosts"]
    assert found["others"] == ["h7"]
    page = place / "page.html"
    assert run(["fleet", "report", "--from", str(place), "--html", str(page)]) == 0
    said = "not in it: h7, where something else was measured"
    assert said in capfd.readouterr().out
    assert said in page.read_text()
    assert document(place, capfd, "--host", "h0", "--host", "h1")["hosts"] == ["h0", "h1"]
    assert document(place, capfd, "--host", "h0", "--host", "h1")["others"] == []
    assert run(["fleet", "report", "--from", str(place), "--host", "h0", "--host", "h7"]) == 2
    assert "no two hosts in" in capfd.readouterr().err


def test_an_effect_s_error_is_that_of_its_interval_and_allows_for_autocorrelation_once(measured: StudyRecord) -> None:
    (one,) = [one for one in summarise(measured).verdicts if one.metric == "iops"]
    known = estimate_of(
        "host", summary_of(measured), replace(one, noise=0.04, lag1=0.5)
    )  # the noise is that with the allowance
    assert known is not None
    assert known.error == pytest.approx(0.04 / math.sqrt(one.rounds))


def changed(folder: Path, statements: str) -> None:
    """Change the stores of all hosts behind virtune's back."""
    for place in folder.glob("*.sqlite"):
        with sqlite3.connect(place) as db:
            db.executescript(statements)
        db.close()


WORSE = "summary = replace(summary, 'better', 'worse')"
OUTDATED = {
    "older method": f"update summaries set method = '{METHOD - 1}.{SUMMARY} {__version__}', {WORSE}",  # noqa: S608 - of constants
    "older version": f"update summaries set method = '{METHOD}.{SUMMARY} 0.0.1', {WORSE}",  # noqa: S608 - of constants
    "fewer trials": f"update summaries set attempts = attempts - 1, {WORSE}",  # noqa: S608 - of constants
    "damaged": "update summaries set summary = 7",
    "none": "delete from summaries",
}


def test_a_report_reads_the_trials_of_a_study_once_and_again_where_its_summary_is_not_today_s(
    folder: Callable[..., Path], capfd: Capture
) -> None:
    place = folder(hosts=3)
    first = document(place, capfd)
    for name, statement in OUTDATED.items():
        changed(place, statement)
        assert document(place, capfd) == first, name
        if name == "none":
            changed(place, "update measurements set measurement = 'x' || measurement")
            assert document(place, capfd) == first, "the trials were read again"
            changed(place, "update measurements set measurement = substr(measurement, 2)")
    changed(place, OUTDATED["none"])
    changed(place, "update measurements set measurement = 'x' || measurement")
    assert run(["fleet", "report", "--from", str(place)]) == 1
    assert "is damaged" in capfd.readouterr().err, "without a summary the trials are read"


def test_the_figures_of_a_summary_are_those_of_its_number(tmp_path: Path) -> None:
    """Others under the same number would be put together with those that are kept: raise SUMMARY, write them here."""
    place = tmp_path / "before.sqlite"
    place.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with Store(place) as store:
        found = summary_of(by_todays_method(store, COMPARE))
    (one,), ((workload, level),) = found.verdicts, found.levels
    assert one.ratio is not None
    figures = [one.ratio.estimate, one.ratio.low, one.ratio.high, one.noise, level.value, level.error, level.df]
    written = {
        "2.1": [0.34319034802, 0.00514049130713, 22.9121319222, 2.79532025433, 8.67903147739, 0.732237961955, 7]
    }
    assert (one.verdict, one.candidate, workload, one.rounds) == ("undecided", "slow", "randread-4k", 8)
    assert figures == pytest.approx(written[f"{METHOD}.{SUMMARY}"], rel=1e-9)
