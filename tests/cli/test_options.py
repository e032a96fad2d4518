# SPDX-License-Identifier: Apache-2.0
"""One table of options: what a row says, flags, plan files, the study, its schema and the docs have."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from tests.published import schema

from virtune.cli import EARLIER, GROUPS, VERBS, cli, run
from virtune.cli.common.options import ShareType, read_options
from virtune.flows.run.check import check_study
from virtune.flows.run.question import Question, study_for
from virtune.model.study import Study, StudyKind
from virtune.model.study_options import ALL, OPTIONS, Provenance, StudyOptions, Takes, flag_of, options_of
from virtune.plan.codec import study_from_json, study_to_json
from virtune.plan.planfile import read_plan
from virtune.store.store import Store

NOT_IN_PLANS = {
    "fix", "durability", "maximize", "minimize", "subject_to", "mode", "confirm", "confirm_seconds", "soak", "spread",
    "quick", "loads", "restart", "scratch", "target", "allow_write_to", "allow_in_use", "fail_if", "attempts", "like",
    "emulated", "all_rounds",
    "its_load",
}  # fmt: skip
"""The options that plan files do not have, each with its reason in the table. A new one is a key or stands here."""

SAMPLES: Mapping[str, tuple[list[str], str]] = {
    "rig": (["--rig", "simulated"], 'rig = "simulated"'),
    "title": (["--title", "Which engine?"], 'title = "Which engine?"'),
    "settings": (["--set", "disk.cache=none"], '[set]\ndisk.cache = "none"'),
    "workloads": (["--workload", "randwrite-4k"], 'workload = "randwrite-4k"'),
    "baseline": (["--baseline", "native"], 'baseline = "native"'),
    "metric": (["--metric", "latency.p99"], 'metric = "latency.p99"'),
    "pairs": (["--pairs", "all"], 'pairs = "all"'),
    "margin": (["--margin", "0.07"], "margin = 0.07"),
    "confidence": (["--confidence", "0.9"], "confidence = 0.9"),
    "at_load": (["--at-load", "50%,5000iops"], 'at_load = ["50%", "5000iops"]'),
    "budget": (["--budget", "90s"], 'budget = "90s"'),
    "rounds": (["--rounds", "9"], "rounds = 9"),
    "seconds": (["--seconds", "500ms"], 'seconds = "500ms"'),
    "ramp": (["--ramp", "250ms"], "ramp = 0.25"),
    "check_data": (["--check-data"], "check_data = true"),
    "check_durability": (["--check-durability"], "check_durability = true"),
    "precondition": (["--precondition"], "precondition = true"),
    "until_steady": (["--until-steady"], "until_steady = true"),
    "steady_rule": (["--steady-rule", "iops:10%/20s"], 'steady_rule = "iops:10%/20s"'),
    "steady_limit": (["--steady-limit", "2m"], 'steady_limit = "2m"'),
    "seed": (["--seed", "77"], "seed = 77"),
    "span": (["--span", "64M"], 'span = "64M"'),
}
"""Each option of both, as a flag and as a key of a plan file."""

ARMS = ["--vary", "disk.aio=threads,native"]
IN_A_PLAN = '[vary]\ndisk.aio = ["threads", "native"]\n'


def parsed(verb: str, words: list[str]) -> dict[str, Any]:
    """What click makes of a command line, or of `study run`."""
    command = cli.get_command(click.Context(cli), EARLIER.get(verb, verb))
    assert command is not None
    if isinstance(command, click.Group):
        command = command.commands["run"]
        words = ["io-engine", *words]
    return command.make_context(verb, words).params


def asked(place: Path, words: list[str], plan: str = "") -> Study:
    """The study of `compare` for a command line and a plan file."""
    file = place / "plan.toml"
    file.write_text(plan)
    said = read_options("compare", parsed("compare", [*words, "--scratch", str(place)]))
    question = Question(
        kind=StudyKind.COMPARE, plan=file, **{name: getattr(said, name) for name in StudyOptions.__dataclass_fields__}
    )
    return study_for(question)


def without_chance(study: Study) -> Study:
    """The study without what is new each time, and without where its options came from."""
    return replace(study, id="", created="", seed=0, trials=(), options=())


def sources(study: Study) -> dict[str, Provenance]:
    return {one.name: one.source for one in study.options}


def test_every_option_is_a_key_of_plan_files_or_its_row_says_why_not() -> None:
    assert {name for name, row in OPTIONS.items() if not row.plan} == NOT_IN_PLANS
    for name, row in OPTIONS.items():
        assert bool(row.plan) != bool(row.not_in_plan), name
        assert row.help, name
    keys = {row.plan for row in OPTIONS.values() if row.plan}
    assert schema("plan")["properties"].keys() == keys
    both = {name for name in options_of("compare") if OPTIONS[name].plan}
    assert both == SAMPLES.keys() | {"vary", "arms", "connect"}, "each is tried below, or in a libvirt domain"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("options")


@pytest.fixture(scope="module")
def nothing(place: Path) -> Study:
    """The study for which no option is given."""
    return asked(place, ARMS)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_flag_and_its_key_ask_the_same_and_are_told_apart(name: str, place: Path, nothing: Study) -> None:
    words, key = SAMPLES[name]
    plan = f"{key}\n{IN_A_PLAN}" if "[" not in key.split("=")[0] else f"{IN_A_PLAN}\n{key}"
    flag, file = asked(place, [*ARMS, *words]), asked(place, [], plan)
    assert without_chance(flag) == without_chance(file)
    if name == "seed":
        assert (flag.seed, file.seed) == (77, 77)
    else:
        assert without_chance(flag) != without_chance(nothing), "the sample is no default"
    assert (sources(flag)[name], sources(file)[name]) == (Provenance.FLAG, Provenance.PLAN)
    assert sources(nothing).get(name, Provenance.DEFAULT) is Provenance.DEFAULT


def test_a_flag_goes_over_the_plan_and_arms_of_one_over_those_of_the_other(tmp_path: Path) -> None:
    study = asked(
        tmp_path, ["--arm", "a:", "--arm", "b:disk.cache=none", "--seconds", "3"], f"seconds = 9\n{IN_A_PLAN}"
    )
    assert [arm.name for arm in study.arms] == ["a", "b"]
    assert study.seconds == 3.0
    assert (sources(study)["seconds"], sources(study).get("vary")) == (Provenance.FLAG, None)


def test_times_of_a_job_file_are_said_to_be_its_own(tmp_path: Path) -> None:
    job = tmp_path / "mine.fio"
    job.write_text("[mine]\nrw=randread\nbs=4k\nruntime=7\nramp_time=2\n")
    study = asked(tmp_path, [*ARMS, "--workload", str(job)])
    assert (study.seconds, study.ramp_seconds) == (7.0, 2.0)
    assert sources(study)["seconds"] is sources(study)["ramp"] is Provenance.JOB_FILE
    assert sources(asked(tmp_path, [*ARMS, "--workload", str(job), "--seconds", "7"]))["seconds"] is Provenance.FLAG


@pytest.mark.parametrize("verb", ALL)
def test_the_command_line_has_every_row_of_a_verb_and_reads_it(verb: str) -> None:
    assert options_of(verb).keys() <= parsed(verb, []).keys()
    for name, row in options_of(verb).items():
        if row.takes is Takes.SWITCH:
            assert getattr(read_options(verb, parsed(verb, [flag_of(name)])), name) is True
        else:
            assert not getattr(read_options(verb, parsed(verb, [])), name), name
    assert set(ALL) <= VERBS.keys() | EARLIER.keys()


def test_the_study_keeps_where_its_options_came_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store.sqlite"
    words = ["compare", "--rig", "simulated", *ARMS, "--rounds", "6", "--store", str(store), "-q"]
    assert run([*words, "-v"]) == 0
    said = [line.split() for line in capsys.readouterr().err.splitlines() if line.startswith("--")]
    lines = {words[0]: " ".join(words[1:]) for words in said}
    assert lines["--rounds"] == "6 (command line)"
    assert lines["--ramp"].startswith("500ms (default: no start-up transient was seen")
    with Store(store, reading=True) as kept:
        study = kept.get(kept.find("last")).study
    assert sources(study)["rounds"] is Provenance.FLAG
    assert study_from_json(study_to_json(study)) == study
    assert run(["show", "last", "-v", "--json", "--store", str(store)]) == 0
    again = capsys.readouterr()
    assert "--rounds" in again.err
    json.loads(again.out)
    older = json.loads(study_to_json(study))
    del older["options"]
    assert study_from_json(json.dumps(older)).options == (), "a study from before that was kept"


def test_a_plan_may_have_every_key_at_once() -> None:
    both = read_plan("\n".join(key for _, key in SAMPLES.values() if not key.startswith("[")) + f"\n{IN_A_PLAN}")
    assert both.seconds == 0.5
    assert both.vary == ("disk.aio=threads,native",)


def test_a_check_plans_its_rounds_with_what_a_trial_of_its_own_rig_takes(tmp_path: Path) -> None:
    rounds = {
        rig: check_study(StudyOptions(rig=rig, seconds=180.0, scratch=tmp_path))[0].rounds
        for rig in ("metal", "storage-daemon")
    }
    # two trials a round, each 4 s after 0.5 s of warm-up, and 0.35 s (metal) or 0.4 s (a daemon) around it
    assert rounds == {"metal": round(180 / 9.7), "storage-daemon": round(180 / 9.8)}
    assert rounds["metal"] > rounds["storage-daemon"]


@pytest.mark.parametrize(
    ("said", "found"),
    [("0.03", 0.03), ("3%", 0.03), ("3 %", 0.03), ("0.5%", 0.005), ("50%", 0.5)],
)
def test_a_share_may_be_written_in_percent(said: str, found: float) -> None:
    assert ShareType(0.001, 0.5).convert(said, None, None) == pytest.approx(found)


@pytest.mark.parametrize("said", ["", "%", "3%%", "nan", "inf", "inf%", "60%", "-3%", "three"])
def test_what_is_no_share_is_refused_in_a_sentence(said: str) -> None:
    with pytest.raises(click.BadParameter):
        ShareType(0.001, 0.5).convert(said, None, None)


def test_every_verb_stands_in_one_group_of_the_help() -> None:
    listed = [verb for verbs in GROUPS.values() for verb in verbs.split()]
    assert sorted(listed) == sorted(verb for verb in VERBS if " " not in verb)


@pytest.mark.parametrize("verb", ["measure", "compare", "sweep", "tune"])
@pytest.mark.parametrize("title", ["x" * 201, "\udcff"])
def test_a_title_is_a_line_of_text(verb: str, title: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*(["compare"] * (verb == "measure")), verb, "--title", title]) == 2
    said = capsys.readouterr().err
    assert "characters, and 200 are the most" in said or "is not text in UTF-8" in said
