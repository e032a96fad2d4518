# SPDX-License-Identifier: Apache-2.0
"""A comparison on a page: the answer first, where it was measured, and every figure as it is, at any width."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from tests.probe.machines import unpack
from tests.report.records import record

from virtune.analyse.study.host_rules import judge_host
from virtune.analyse.study.summarise import summarise
from virtune.fio.workloads import parse_workload
from virtune.model.evidence import StudyRecord
from virtune.model.metric import BY_ID
from virtune.model.reason import Reason
from virtune.model.remark import Remark, Weight
from virtune.model.result import Basis, Drift, Value
from virtune.model.study import Checked, Study
from virtune.model.study_options import ChosenOption, Provenance
from virtune.model.verdict import Comparison, Interval, Verdict
from virtune.plan.arms import arms_from_vary, base_stack, make_arm
from virtune.probe.host import host_facts
from virtune.report.json.host import probe_document
from virtune.report.markdown import markdown
from virtune.report.pages.brief import of_result
from virtune.report.pages.evidence import drift_text, resting_on, steadiness
from virtune.report.pages.result import render, value_text, verdict_sentence
from virtune.report.pages.study import VM_COST, arm_lines, host_line
from virtune.report.pages.whole import plain_report

WIDTHS = (40, 60, 80, 100, 160)


def page(renderable: RenderableType, width: int = 100) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(renderable, crop=False)
    return captured.get()


def shown(kept: StudyRecord, width: int = 100, facts: str = "") -> str:
    return page(render(summarise(kept), facts), width)


def facts_of(machine: str, tmp_path: Path) -> str:
    host = host_facts("/var/tmp/virtune", unpack(machine, tmp_path))
    document = probe_document(host, judge_host(host))
    program = {"name": "qemu-storage-daemon", "path": "/usr/bin/it", "version": "7.2.22", "package": None}
    document["host"]["qemu"]["storage_daemon"] = program
    document["host"]["fio"]["program"] = program | {"name": "fio", "version": "fio-3.33"}
    return json.dumps(document)


def value(metric: str, number: float, **more: float | bool) -> str:
    return value_text(BY_ID[metric], Value(metric=metric, value=number, rounds=9, spread=None, **more))  # type: ignore[arg-type]


def test_every_value_is_written_with_what_is_known_of_it() -> None:
    assert value_text(BY_ID["iops"], None) == "-"
    assert value("latency.p99", 4.05e6) == "4.05 ms"
    assert value("latency.p99", 4.05e6, low=3.05e6, high=5.0e6) == "4.05 ms"
    assert value("latency.p99", 4.05e6, low=3.05e6) == ">=3.05 ms"
    assert value("latency.p99", 4.05e6, resolved=False) == "~4.05 ms"
    assert value("bandwidth", 262_144_000.0) == "262 MB/s"
    assert value("bandwidth", 4_096_000.0) == "4.1 MB/s"
    assert value("cpu_per_io", 7.01e-6) == "7.01 us"
    assert value("cpu.rig", 116.1) == "116.1 %"


@pytest.mark.parametrize(("job", "several"), [("numjobs=2", True), ("iodepth=2", False)])
def test_whose_cpu_a_percentage_is_of_is_said(job: str, several: bool) -> None:
    kept, load = record(3), replace(parse_workload(f"rw=randread,{job}")[0], name="randread-4k")
    busy = (("cpu.load.usr", 3.0), ("cpu.load.sys", 4.0))
    trials = tuple(
        replace(one, measurement=replace(one.measurement, values=(*one.measurement.values, *busy)))
        for one in kept.trials
        if one.measurement is not None
    )
    text = " ".join(shown(replace(kept, study=replace(kept.study, workloads=(load,)), trials=trials)).split())
    assert "load CPU: of the program that does the I/O" in text
    assert ("does the I/O, the mean of its jobs, QEMU CPU: of QEMU" in text) is several


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (Verdict.BETTER, "b is better than a, latency p99 -20.0 % [-30.0, -10.0]"),
        (Verdict.WORSE, "b is worse than a, latency p99 -20.0 % [-30.0, -10.0]"),
        (Verdict.SAME, "b is the same as a, latency p99 -20.0 % [-30.0, -10.0]; why"),
        (Verdict.UNDECIDED, "b against a: undecided, latency p99 -20.0 % [-30.0, -10.0]; why"),
    ],
)
def test_a_verdict_names_its_arms_its_metric_and_its_reason(verdict: Verdict, text: str) -> None:
    found = Comparison(
        workload="w", metric="latency.p99", baseline="a", candidate="b", rounds=9, verdict=verdict, why="why",
        reason=Reason.NOT_SETTLED,
        ratio=Interval(estimate=0.8, low=0.7, high=0.9, confidence=0.95),
    )  # fmt: skip
    assert verdict_sentence(found).plain == text
    few = replace(found, rounds=4)
    assert "latency p99 -20.0 % [too few rounds to tell]" in verdict_sentence(few).plain
    assert "[-30.0, -10.0]" in verdict_sentence(replace(found, rounds=5)).plain, "five rounds of three arms decide"
    of_two = replace(found, rounds=5, verdict=Verdict.UNDECIDED, reason=Reason.TOO_FEW)
    assert "latency p99 -20.0 % [too few rounds to tell]" in verdict_sentence(of_two).plain
    none = replace(found, ratio=None, verdict=Verdict.UNDECIDED)
    assert verdict_sentence(none).plain == "b against a: undecided, latency p99; why"


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_or_broken_at_any_width(width: int) -> None:
    text = shown(record(12), width)
    lines = text.splitlines()
    for whole in ("20260102-030405-abcd", "+10.0 % [", "1,002", "CPU per I/O", "disk.aio"):
        assert any(whole in line for line in lines), whole
    again = [line for line in lines if line.startswith("  virtune compare ")]
    assert len(again) == 1, "the command can be pasted"
    assert "\u2026" not in text
    assert all(len(line) <= width for line in lines if line not in again)


def test_the_answer_comes_before_every_table() -> None:
    lines = shown(record(12)).splitlines()
    answer = next(line for line in lines if line.startswith("  native "))
    assert lines.index(answer) < 6
    assert "better" in answer
    assert "+10.0 % [" in answer
    assert "●" in answer
    narrow = shown(record(12), 40)
    assert "●" not in narrow
    assert "+10.0 % [" in narrow


def test_several_workloads_are_a_matrix_first_and_drawn_one_by_one_below() -> None:
    kept = record(12)
    (first,) = kept.study.workloads
    other = replace(first, name="other")
    trials = tuple(
        replace(one, trial=replace(one.trial, workload="other", number=one.trial.number + 100)) for one in kept.trials
    )
    study = replace(kept.study, workloads=(first, other), trials=(*kept.study.trials, *(one.trial for one in trials)))
    text = shown(replace(kept, study=study, trials=(*kept.trials, *trials)))
    head = text.splitlines()
    rows = [line.split() for line in head if line.startswith(("  randread-4k ", "  other "))]
    assert rows == [[name, "▲", "better", "+10.0", "%"] for name in ("randread-4k", "other")]
    assert text.count("●") == 2


def test_a_report_says_where_and_how_it_was_measured(tmp_path: Path) -> None:
    kept = record(12, facts=facts_of("small-vm", tmp_path))
    kept = replace(kept, study=replace(kept.study, title="Which engine?"))
    host = host_line(kept.study, kept.facts)
    for part in ("AMD EPYC (2 CPUs)", "Linux 6.18.44", "QEMU 7.2.22", "fio 3.33", "disk vda (", "virtune "):
        assert part in host, part
    found = summarise(kept)
    for text in (page(render(found, kept.facts), 300), markdown(found, (), kept.facts)):
        for part in ("Which engine?", "virtune compare --arm threads:", "12 rounds x 2 arms x 4.0 s", "--seed 1"):
            assert part in text, part
    assert host in page(render(found, kept.facts), 300)
    assert "host not recorded" in host_line(kept.study, "")


def test_the_worst_trial_is_quoted_as_the_worst() -> None:
    kept = record(3)
    shares = iter((0.02, 0.04, 0.03, 0.02, 0.02, 0.02))
    trials = []
    for one in kept.trials:
        assert one.measurement is not None
        share = next(shares)
        remark = Remark(id="steal", weight=Weight.WARNING, text=f"CPU steal {share:.0%}")
        trials.append(
            replace(one, measurement=replace(one.measurement, remarks=(remark,), gates=(("steal", share),)))
        )
    text = " ".join(shown(replace(kept, trials=tuple(trials))).split())
    assert "warning: CPU steal 4% (every arm in 3 of 3 rounds; this is the worst, the median 2.0 %)" in text
    assert "1 warning, see below" in text


def test_cache_unsafe_is_said_to_lose_data() -> None:
    kept = record(8)
    arms = arms_from_vary(base_stack(())[0], ["disk.cache=none,unsafe"])
    safe, unsafe = (replace(arm, name=name) for arm, name in zip(arms, ("threads", "native"), strict=True))
    warned = "cache=unsafe ignores flushes: it loses data when the host crashes"
    assert warned in shown(replace(kept, study=replace(kept.study, arms=(safe, unsafe))))
    assert warned not in shown(kept)


def test_a_basis_of_too_few_rounds_gives_no_absurd_number() -> None:
    asked = record(4).study
    assert drift_text(Drift(per_minute=0.2, low=-0.113, high=0.568)).startswith(
        "drift: IOPS between -11.3 % and +56.8 % a minute (too short to tell)"
    )
    assert drift_text(Drift(per_minute=0.0, low=-0.01, high=0.02)).startswith(
        "no drift detected: IOPS between -1.0 % and +2.0 % a minute"
    )
    basis = Basis(workload="randread-4k", rounds=4, noise=1.8, lag1=0.8, seconds_left=64_000.0, effective=0.4,
                  correlation_seconds=0.2, drift=Drift(per_minute=0.1, low=-0.995, high=2.3e17))  # fmt: skip
    said = list(steadiness(basis, asked))
    assert said == ["effective sample size: too few rounds to tell", "drift: too few rounds to tell"]
    result = replace(summarise(record(4)), study=replace(asked, sequential=True), basis=(basis,))
    rests = " ".join(resting_on(result, asked.workloads[0]))
    noisy = (
        "differences of randread-4k vary by 180 % from round to round: deciding the rest would take more than an hour"
    )
    assert f"{noisy} (is it the host? `virtune host check`)" in rests
    checked = Checked(study="c-1", created="2026-11-23T00:00:00+00:00", verdict=Verdict.SAME, low=0.99, high=1.01)
    known = replace(result, study=replace(result.study, checked=checked))
    rests = " ".join(resting_on(known, asked.workloads[0]))
    assert f"{noisy} (`virtune host check` c-1 tells of its own load, and not of this one)" in rests
    assert "this host is" not in rests, "a check of another load may call it fit"
    assert "17 h" not in rests
    soon = replace(result, basis=(replace(basis, seconds_left=30.0),))
    decides = "90 % likely to decide the rest"
    assert f"run again with --budget 30s: {decides}" in " ".join(resting_on(soon, asked.workloads[0]))
    quick = ChosenOption(name="quick", value="yes", source=Provenance.FLAG)
    soon = replace(soon, study=replace(soon.study, options=(quick,)))
    assert f"--budget 30s, not --quick: {decides}" in " ".join(resting_on(soon, asked.workloads[0]))


def test_the_method_of_a_report_is_that_of_its_plan() -> None:
    kept = record(12)

    def told(study: Study) -> str:
        one = replace(kept, study=study)
        return " ".join(page(plain_report(summarise(one), one), 110).split())

    planned = replace(kept.study, sequential=True, pairs="baseline", looks=((6, 0.5), (12, 1.0)))
    said = told(planned)
    assert "Dunnett: every arm against threads" in said
    assert "looked at after every round from round 6 on" in said
    assert "from round 5 on" in told(replace(planned, fewest_rounds=5))
    assert "the allowed error is spread over these looks" in said
    assert "hold at any time" not in said
    assert "Bonferroni over all pairs" in told(replace(planned, pairs="all"))
    assert "The number of rounds was fixed beforehand" in told(replace(planned, sequential=False, looks=()))


def test_what_an_arm_is_stands_below_the_answer() -> None:
    found = summarise(record(12))
    words = "arms threads (disk.aio=threads), native (disk.aio=native) are QEMU's block layer without a VM"
    assert words in page(render(found), 300)
    assert "threads, native: QEMU without a VM, which adds its kernel and exits" in page(of_result(found, ""), 300)
    arms = (make_arm("a", ["rig=metal"]), make_arm("b", ["rig=vhost-user", "disk.aio=native"]))
    assert list(arm_lines(replace(record(12).study, arms=arms))) == [
        "arm a is a file on the host's disk, opened without QEMU",
        "arm b (disk.aio=native) is QEMU's block layer without a VM, loaded through virtio queues as a VM loads it; "
        + VM_COST,
    ]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ('{"host": {"virtualization": {"hypervisor": "kvm"}}}', True),
        ('{"host": {"virtualization": {"hypervisor": "none"}}}', False),
        ('{"host": []}', False),
        ("", False),
    ],
)
def test_metal_is_no_bare_metal_where_the_host_is_a_vm(facts: str, said: bool) -> None:
    kept = replace(record(12).study, arms=(make_arm("a", ["rig=metal"]),))
    words = "; this host is itself a VM, so that is this VM's own disk and not bare metal"
    for target in (None, "/dev/vdb"):
        (line,) = arm_lines(replace(kept, target=target), facts)
        assert line.endswith(f"opened without QEMU{words if said else ''}")


def test_what_runs_in_a_vm_of_virtune_is_said() -> None:
    arms = (make_arm("a", ["rig=qemu", "guest.system=bare"]), make_arm("b", ["rig=qemu"]))
    bare, linux = arm_lines(replace(record(12).study, arms=arms))
    has = "guests with {} and 512 MiB"
    assert bare.endswith(
        "a VM that virtune starts; only the load runs in it, without an operating system; " + has.format("1 vCPU")
    )
    assert linux.endswith("a VM that virtune starts; the load runs in it, in Linux; " + has.format("2 vCPUs"))


def test_an_interval_is_named_where_one_is_shown() -> None:
    named = "[low, high], drawn as a bar: 95 % confidence interval of the change from threads"
    kept = record(12)
    assert named in page(render(summarise(replace(kept, study=replace(kept.study, confidence=0.95)))), 300)
    assert "[low, high]" not in page(render(summarise(record(3))), 300)


def test_rounds_are_those_that_were_measured_and_not_those_that_were_planned() -> None:
    kept = record(6)
    whole = summarise(kept)
    each = sum(trial.round == 1 for trial in kept.study.trials)
    for done in range(1, len(kept.study.trials) + 1):
        said = page(render(replace(whole, trials_done=done), ""))
        count = -(-done // each)
        assert f"\n{count} round{'' if count == 1 else 's'} x 2 arms x " in said, done
