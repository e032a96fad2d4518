# SPDX-License-Identifier: Apache-2.0
"""What is said of inputs of which one thing is turned, as a census for each subject.

python -m tests.golden.census_cases     # write all of it down again; `git diff tests/golden` says what changed
"""

import contextlib
import gzip
import json
import math
import random
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from tests.advise.cases import CASES as AUDITED
from tests.analyse.edited_trials import HEADER, STACK, WORKLOAD, sample
from tests.analyse.planted_paths import PLANTED
from tests.analyse.reading_cases import FIRES, SILENT
from tests.analyse.recordings import RESULTS, recorded
from tests.flows.writers import places, samples, values_of
from tests.golden.census import Census, flat
from tests.golden.census_judged import JUDGED
from tests.golden.census_runs import RUNS
from tests.golden.census_texts import TYPED as TEXTS
from tests.golden.census_worlds import WORLDS
from tests.golden.golden_cases import STORE, studies
from tests.golden.turned import Answers, asked, each, kept, turned_text
from tests.knob_values import EXAMPLES
from tests.live_samples import live
from tests.probe.machines import unpack

from virtune.advise.audit import audit
from virtune.advise.placement import cpus_of, flash
from virtune.analyse.fleet import summary_of
from virtune.analyse.layers.bottleneck import judge
from virtune.analyse.layers.path import disk_series, frame
from virtune.analyse.search.tuning import Race, check_limits, tuning
from virtune.analyse.stats.anytime import blocks_for, blocks_to_decide, contrasts, levels, quantile
from virtune.analyse.stats.noise import Values, between_starts, correlation_of, drift_of
from virtune.analyse.stats.paired import (
    Family,
    compare,
    compare_at_any_time,
    compare_planned,
    compare_unpaired,
    interval_of,
    mean_of_rounds,
    rank_test,
    sign_test,
    welch,
)
from virtune.analyse.stats.planned import (
    dunnett_alpha,
    level_of,
    mixed_quantile,
    plain_means,
    planned_contrasts,
    rounds_to_decide,
    smallest_planned,
    spent,
)
from virtune.analyse.stats.student import fisher, shift_of
from virtune.analyse.study.host_rules import judge_host
from virtune.analyse.study.offered_load import swept
from virtune.analyse.study.summarise import summarise
from virtune.analyse.trial.derive import derive
from virtune.analyse.trial.explain import explain
from virtune.analyse.trial.measure import measurement_of
from virtune.dialects.language import Language
from virtune.dialects.languages import LANGUAGES, language_of
from virtune.fio.options import size_of, whole
from virtune.fio.results import read_result
from virtune.fio.workloads import parse_workload
from virtune.flows.reports.render import spelled_stack
from virtune.flows.stored.show import by_todays_method
from virtune.model import text as texts
from virtune.model.bottleneck import DataPath
from virtune.model.contradictions import contradictions, settings_of_second
from virtune.model.domain import SettingChange
from virtune.model.durability import durability_of
from virtune.model.evidence import StudyRecord, not_shown, to_verify, unverified
from virtune.model.finding import Subject
from virtune.model.knobs import BY_ID, KNOBS, find, matching
from virtune.model.live import LiveSample
from virtune.model.metric import BY_ID as METRIC_OF
from virtune.model.metric import checked_metric, metric_id
from virtune.model.remark import Remark
from virtune.model.rig import RIGS, read_rig
from virtune.model.stack import Stack, mapping_of, rbd_place, with_setting
from virtune.model.text import did_you_mean
from virtune.model.tuning import RaceRules
from virtune.plan.arms import arm_from_text, arms_from_vary, parse_setting
from virtune.plan.goal import parse_condition, parse_limit
from virtune.plan.loads import read_loads
from virtune.probe.host import host_facts
from virtune.store.store import Store

SAID = Path(__file__).parent / "census"


def bottlenecks() -> Answers:
    """What limits a disk, of every planted data path."""

    def judged(path: DataPath) -> Iterator[str]:
        found = judge(path)
        yield from (found.cause.name, *found.evidence, found.experiment)

    yield from (asked(judged, path) for path in each([one for _, one in PLANTED], 2))


def readings() -> Answers:
    """What is said of every fio result that a rule speaks of, or is silent on."""
    results = [*(one for one, _, _ in FIRES.values()), *SILENT.values()]
    yield from (asked(remarked, explain, one) for one in each(results, 8))


def remarked(rules: Callable[[Any], Iterable[Remark]], seen: object) -> Iterator[str]:
    return (f"{one.id} {one.weight.value}: {one.text}" for one in rules(seen))


def hosts() -> Answers:
    """What is found in the facts of recorded machines."""
    facts = []
    for name in ("two-sockets", "small-vm", "container", "lvm-on-raid"):
        with tempfile.TemporaryDirectory() as place:
            facts.append(host_facts("/var/lib/images", unpack(name, Path(place))))
    yield from (asked(remarked, judge_host, one) for one in each(facts, 1))


def audits() -> Answers:
    """What the audit finds in the VMs of its cases, and what the template changes there."""

    def audited(subject: Subject) -> Iterator[str]:
        yield from (f"{one.rule.id} {one.seen.seen}; {one.seen.advice}; {one.seen.measure}" for one in audit(subject))
        template = flash(subject)
        yield from (f"{one.knob} at {one.at}: {one.value}" for one in template.turns)
        yield from (one.text for one in template.left)

    subjects = [case.subject for pair in AUDITED.values() for case in pair]
    yield from (asked(audited, one) for one in each(subjects, 4))


def results() -> Answers:
    """What is read from recorded results of fio with one number or word turned."""
    for name in RESULTS:
        text = recorded(name)
        for way, other in turned_text(text):
            if kept(f"{name}{way}", 1 + len(text) // 40):
                yield asked(read_of, other)


def read_of(text: str) -> Iterator[str]:
    result = read_result(text)
    yield from flat(result)
    yield from flat(measurement_of(result))


def configurations() -> Answers:
    """What is read from recorded configurations with one line or number turned."""
    for language in LANGUAGES:
        for text, _ in samples(language.name):
            for way, other in turned_text(text.decode(errors="surrogateescape")):
                if kept(f"{len(text)}{way}", 1 + len(text) // 250):
                    yield asked(domains_of, other.encode(errors="surrogateescape"))


def domains_of(text: bytes) -> Iterator[str]:
    language = language_of(text)
    return flat(language.domains(text), language.name)


def writings() -> Answers:
    """What each language makes of a configuration for each value of each knob."""
    for language in LANGUAGES:
        for text, domains in samples(language.name)[::4]:
            domain = domains[0]
            for knob in (one for one in KNOBS if language.refusal(one.id) is None):
                for at in places(domain):
                    for value in values_of(knob)[-3:]:
                        if kept(f"{len(text)}{knob.id}{at}{value}", 6):
                            turn = SettingChange(knob=knob.id, at=at, value=value)
                            said = asked(written_with, language, text, domain.name, turn)
                            yield [f"{language.name} {line}" for line in said]


def written_with(language: Language, text: bytes, domain: str, turn: SettingChange) -> Iterator[str]:
    after = language.alter(text, turn, domain=domain)
    yield from changed(turn.knob, text, after)
    commands = language.commands(text, after, "vm") if language.commands else ()
    yield from (f"{turn.knob} command {sum_of(one)}" for one in commands)


def sum_of(text: str) -> int:
    """A checksum of a line that is another in each configuration."""
    return zlib.crc32(text.encode())


def changed(knob: str, before: bytes, after: bytes) -> list[str]:
    """The lines that one text has and the other has not, by their checksums."""
    one, other = (text.decode(errors="replace").splitlines() for text in (before, after))
    gone, new = [line for line in one if line not in other], [line for line in other if line not in one]
    return [*(f"{knob} - {sum_of(line)}" for line in gone), *(f"{knob} + {sum_of(line)}" for line in new)]


def stacks() -> Iterator[Stack]:
    """Stacks of every rig with each knob alone, and with each two."""
    for rig in RIGS:
        base = replace(Stack(), rig=RIGS[rig].name, domain="web" if RIGS[rig].needs_where else None)
        yield base
        usable = [(knob, *EXAMPLES[knob]) for knob in sorted(EXAMPLES) if knob != "machine.emulator"]
        for group in (*combinations(usable, 1), *combinations(usable, 2)):
            if len(group) == 1 or kept(f"{rig}{group}", 5):
                words = [*(need for _, _, needs in group for need in needs), *(f"{k}={v}" for k, v, _ in group)]
                with contextlib.suppress(ValueError, TypeError):
                    one = base
                    for word in words:
                        name, _, text = word.partition("=")
                        one = with_setting(one, BY_ID[name], BY_ID[name].read(text))
                    yield one


def settings() -> Answers:
    """What is said of stacks: contradictions, what they promise, what can be verified, and their lines."""

    def settled(stack: Stack) -> Iterator[str]:
        yield from (*contradictions(stack), durability_of(stack).words, *to_verify(stack), *unverified(stack, ()))
        yield from (f"{knob}: {why}" for knob, why in not_shown(stack).items())

    for number, stack in enumerate(stacks()):
        yield asked(settled, stack)
        if number % 4 == 0:
            yield asked(lines_of, stack)


def lines_of(stack: Stack) -> Iterator[str]:
    for one in spelled_stack(stack, target=None, size_bytes=2**20):
        yield from (*one.text.split("\n"), *one.notes)


def statistics() -> Answers:
    """What rounds of made-up arms say: equal and other arms, dips, levels that last, holes, few rounds and many."""
    for seed in range(90):
        chance = random.Random(seed)
        arms, rounds = chance.choice((2, 2, 3, 5)), chance.choice((1, 2, 3, 5, 8, 12, 30))
        values = np.array([[figure_of(chance, arm, number) for arm in range(arms)] for number in range(rounds)])
        pairs = [*combinations(range(arms), 2), (1, 0)]
        yield list(flat(figures_of(values, pairs, arms)))


def figure_of(chance: random.Random, arm: int, number: int) -> float:
    """A round's logarithm: an arm's own level, rarely a dip, a level that lasts, or nothing."""
    level, kind = 0.02 * arm * (arm % 2), chance.random()
    dip = -0.8 if kind < 0.03 * arm else 0.0
    lasts = 0.3 if arm == 2 and number // 6 % 2 else 0.0
    return math.nan if kind > 0.97 else level + dip + lasts + chance.gauss(0, 0.02 * (1 + 2 * (arm == 1)))


def figures_of(values: Values, pairs: Sequence[tuple[int, int]], arms: int) -> dict[str, object]:
    alpha = 0.05 / arms
    whenever, at_looks = contrasts(values, pairs, alpha=alpha), planned_contrasts(values, pairs, level=0.01)
    rows = [[float(one) for one in row if not math.isnan(one)] for row in values.T]
    ratios = [(math.exp(a), math.exp(b)) for a, b in values[:, :2].tolist() if not math.isnan(a + b)]
    apart = [math.log(b / a) for a, b in ratios]
    return {
        "whenever": whenever,
        "looks": at_looks,
        "plain": [column.tolist() for column in plain_means(values, pairs, alpha=alpha)],
        "one": [mean_of_rounds([math.exp(one) for one in rows[0]], robust=robust) for robust in (True, False)],
        "interval": interval_of(ratios, confidence=0.95),
        "signs": sign_test(ratios),
        "shift": shift_of(apart, confidence=0.9),
        "welch": welch(rows[0], rows[1], confidence=0.99) if min(map(len, rows)) else None,
        "ranks": rank_test(rows[0], rows[1]) if min(map(len, rows)) else None,
        "levels": [column.tolist() for column in levels(values)],
        "drift": drift_of({str(arm): list(enumerate(row)) for arm, row in enumerate(rows)}),
        "starts": between_starts([(number // 2, one) for number, one in enumerate(rows[0])]),
        "correlation": correlation_of(rows, 0.5),
        "decide": [
            decided(one, margin=margin, alpha=alpha, arms=arms)
            for one in whenever
            if math.isfinite(one.radius)
            for margin in (0.03, 0.2)
            for decided in (blocks_to_decide, rounds_to_decide)
        ],
        "reach": [
            blocks_for(one.radius / 3, sd=one.sd or 0.0, alpha=alpha, arms=arms)
            for one in whenever
            if math.isfinite(one.radius)
        ],
    }


def plans() -> Answers:
    """The levels and quantiles of plans, without any data."""
    for count in (1, 2, 3, 5, 8, 13, 40):
        for alpha in (0.01, 0.05, 0.2):
            looks = tuple((float(one), one / count) for one in range(1, count + 1))
            figures = {
                "level": level_of(looks, alpha),
                "spent": [spent(share, alpha) for _, share in looks],
                "dunnett": dunnett_alpha(count, alpha),
                "quantile": [quantile(count, df, alpha) for df in (0, 1, 3.5, 40)],
                "mixed": [
                    mixed_quantile(alpha, df, lag1, count, arms, lasting=lasting)
                    for df in (2.0, 9.0)
                    for lag1 in (-0.2, 0.0, 0.6)
                    for arms in (2, 4)
                    for lasting in (True, False)
                    if count > 2
                ],
                "smallest": [smallest_planned(count, sd=0.05, alpha=alpha, arms=arms) for arms in (2, 3, 6)],
                "fisher": [fisher(hit, count, hit // 2, 2 * count) for hit in range(count + 1)],
            }
            yield list(flat(figures))


def comparisons() -> Answers:
    """What two arms' rounds are judged to say, by every way to compare them."""
    for seed in range(160):
        chance = random.Random(seed)
        rounds, change = chance.choice((1, 2, 3, 5, 9, 20)), chance.choice((1.0, 1.0, 0.95, 1.2))
        noise = chance.random() / 20
        made = {
            name: [1e4 * by * math.exp(chance.gauss(0, noise)) * (chance.random() > 0.02) for _ in range(rounds)]
            for name, by in (("a", 1.0), ("b", change), ("c", change))
        }
        if chance.random() < 0.1:
            made["b"] = list(made["a"])
        metric = METRIC_OF[chance.choice(("iops", "latency.p99", "cpu_per_io"))]
        pairs, margin = [("a", "b"), ("b", "c"), ("c", "a")], chance.choice((0.01, 0.03, 0.1))
        base, other = ("a", made["a"]), ("b", made["b"])
        family = Family(metric=metric, workload="w", margin=margin, confidence=0.95)
        ways: dict[str, object] = {
            "fixed": compare(family, base, other),
            "unpaired": compare_unpaired(family, base, other),
            "whenever": compare_at_any_time(family, made, pairs),
            "planned": compare_planned(family, made, pairs, level=0.03),
        }
        yield list(flat(ways))


def races() -> Answers:
    """How races of arms stand, block after block, and what limits say of their slices."""
    for seed in range(24):
        chance, arms = random.Random(seed), [f"a{number}" for number in range(2 + seed % 4)]
        slices_max, arms_max = (None, None, 40)[seed % 3], (None, 8)[seed % 5 == 0]
        rules = RaceRules(contenders_first=seed % 2 == 0, slices_max=slices_max, arms_max=arms_max)
        plots = {arm: number // 2 for number, arm in enumerate(arms)} if seed % 4 == 1 else None
        race = Race(arms, rules, plots=plots)
        for block in range(3 + 3 * (seed % 6)):
            race.add({arm: figure_of(chance, number, block) for number, arm in enumerate(arms)})
        yield list(flat(race.standing))
        limits = tuple(map(parse_limit, ("latency.p99 < 2ms", "iops > 9000")))
        slices = {
            (arm, "w"): [
                {"latency.p99": 1.9e6 * math.exp(chance.gauss(0, 0.05 * number)), "iops": 9000 + 500 * number}
                for _ in range(seed % 7)
            ]
            for number, arm in enumerate(arms)
        }
        yield list(flat(check_limits(limits, slices, error=0.05)))


@cache
def kept_studies() -> tuple[StudyRecord, ...]:
    """The small studies of every kind that are kept for `golden_cases`."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "kept.sqlite"
        path.write_bytes(gzip.decompress(STORE.read_bytes()))
        with Store(path) as store:
            return tuple(by_todays_method(store, one) for one in studies().values())


def records() -> Answers:
    """What follows from kept studies of which one thing is turned: results, sweeps, searches and a host's part."""

    def concluded(record: StudyRecord) -> Iterator[str]:
        if record.study.search is not None:
            yield from flat(tuning(record))
            return
        yield from (*flat(summarise(record)), *flat(summary_of(record)))
        if record.study.sweep is not None:
            yield from flat(swept(record))

    yield from (asked(concluded, one) for one in each(kept_studies(), 500))


def frames() -> Answers:
    """What `top` sees between two samples of which one thing is turned."""

    def seen(after: LiveSample) -> Iterator[str]:
        yield from (*flat(frame(live(2), after)), *flat(disk_series([live(2), after], "sql1", "vda")))

    yield from (asked(seen, one) for one in each((live(4), live(9)), 4))


def trials() -> Answers:
    """What is derived of a trial whose counters have one line or number turned."""
    begin, stop = (json.dumps(sample(second, mark), indent=0) for second, mark in ((1, "begin"), (3, "stop")))
    header = json.dumps(HEADER)
    stacks = STACK, replace(STACK, device=replace(STACK.device, iothread="io1"))
    for stack in stacks:
        for way, other in turned_text(stop):
            if kept(way, 2 if stack is STACK else 6):
                yield asked(derived, stack, "\n".join(one.replace("\n", "") for one in (header, begin, other)))


def derived(stack: Stack, counters: str) -> Iterator[str]:
    parts = {"fio.json": recorded("randread.both").encode(), "counters.jsonl": counters.encode()}
    return flat(derive(parts, stack=stack, workload=WORKLOAD))


NUMBERS = (0, 0.4, 1, 9.96, 99.96, 512, 999.6, 1023, 1024, 9_999.7, 65_536, 1e5, 999_999, 1.5e6, 2**30, 3e9, 1e13)
TYPED = (
    "", "0", "1", "12", "4k", "4K", "1M", "2G", "1.5G", "10GiB", "5s", "2m", "2min", "1h", "500ms", "3us", "-1",
    "50%", "5000iops", "100 %", "iops", "iops < -3%", "iops > 9000", "latency.p99 < 2ms", "latency.p99 > +5%",
    "p99 < 1ms", "iops <", "< 3", "bandwidth > 1G", "iops == 3", "disk.cache=none", "disk.cache", "cache=none",
    "cache=nine", "aio=native,io_uring", "a: disk.cache=none disk.aio=native", "device.iothread=io1", "0-3", "0,2",
    "1+2", "io1:0+io2", "10%,50%", "10%,10%", "110%", "rw=randread", "rw=randread,bs=4k,iodepth=8", "randread 4k",
    "oltp", "oltp,vdi", "rw=randrw,rwmixread=70,bs=8k", "bs=4k", "throttle_iops=100",
    "bus=virtio-scsi+throttle_iops=200", "speed=9",
)  # fmt: skip
"""What somebody may type, for one reader or another, and what is wrong for all."""


def words() -> Answers:
    """What every reader of a word makes of what somebody types, and how numbers are written."""
    for name in ("format_bytes", "format_count", "format_bandwidth", "format_share", "format_ns", "format_seconds"):
        for number in (*NUMBERS, *(-one for one in NUMBERS[1:8])):
            yield [f"{name} {getattr(texts, name)(number)}"]
    readers: tuple[Callable[[str], object], ...] = (
        texts.parse_bytes, texts.parse_seconds, texts.quoted, parse_limit, parse_condition, parse_setting,
        parse_workload, arm_from_text, settings_of_second, mapping_of, size_of, whole, checked_metric, metric_id,
        cpus_of, find, matching, read_rig, rbd_place, lambda one: read_loads((one,)),
        lambda one: arms_from_vary(Stack(), [one]),
        lambda one: did_you_mean(one, ("iops", "disk.cache", "randread")),
    )  # fmt: skip
    for number, reader in enumerate(readers):
        yield from ([f"reader {number} {line}" for line in asked(read_by, reader, one)] for one in TYPED)


def read_by(reader: Callable[[str], object], typed: str) -> Sequence[str]:
    try:
        return list(flat(reader(typed)))
    except ValueError as error:
        return [str(error)]


SUBJECTS: Mapping[str, Callable[[], Answers]] = {
    "bottlenecks": bottlenecks, "readings": readings, "hosts": hosts, "audits": audits, "results": results,
    "configurations": configurations, "writings": writings, "settings": settings, "statistics": statistics,
    "plans": plans, "comparisons": comparisons, "races": races, "records": records, "frames": frames,
    "trials": trials, "words": words, **WORLDS, **TEXTS, **RUNS, **JUDGED,
}  # fmt: skip


def said(subject: str) -> str:
    """Return the census of a subject."""
    census = Census()
    for lines in SUBJECTS[subject]():
        census.add(lines)
    return census.said


def write(names: Sequence[str]) -> None:
    """Write down what is said of these subjects now; of all of them without names."""
    SAID.mkdir(exist_ok=True)
    for name in names or SUBJECTS:
        (SAID / f"{name}.txt").write_text(said(name))


if __name__ == "__main__":
    write(sys.argv[1:])
