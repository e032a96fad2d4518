# SPDX-License-Identifier: Apache-2.0
"""Many hosts as text: which there are, what their audits and probes say together, a run, and its report."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, NamedTuple

from rich.console import RenderableType

from virtune.model import fleet
from virtune.model.errors import UsageError
from virtune.model.facts import Difference
from virtune.model.finding import Audited, Severity, Unread
from virtune.model.metric import BY_ID
from virtune.model.text import NOT_NEGATIVE, Name, format_seconds, format_share, printable
from virtune.model.tuning import Place, RaceRules, Recommendation, Runner
from virtune.model.verdict import Interval, Verdict
from virtune.report.pages.audit import brief
from virtune.report.render.terminal import Table, wide
from virtune.report.view import SIMULATED_ONLY
from virtune.report.words import change_words, count_text, cut_text, difference_text, end_words, limits_text


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    """One rule over all hosts."""

    rule: Annotated[str, "The rule's id.", {"pattern": "^R[0-9]+$"}]
    name: Annotated[str, "The rule's name."]
    severity: Annotated[Severity, "Its severity."]
    hosts: Annotated[tuple[Name, ...], "The hosts where it found something."]
    without: Annotated[tuple[Name, ...], "The hosts with VMs where it found nothing."]
    domains: Annotated[int, "The number of VMs where it found something.", NOT_NEGATIVE]
    findings: Annotated[int, "The number of findings.", NOT_NEGATIVE]


def rule_rows(audits: Sequence[fleet.HostAudit]) -> tuple[RuleRow, ...]:
    """Return the rules that found something, the most severe and the most frequent first.

    A host without VMs has nothing to find, so it is not among those without a finding.
    """
    rows = []
    looked = {
        one.host.name: [[each.rule for each in vm.findings] for vm in one.audited] for one in audits if one.audited
    }
    for rule in {one.id: one for vms in looked.values() for found in vms for one in found}.values():
        counts = {host: [[one.id for one in found].count(rule.id) for found in vms] for host, vms in looked.items()}
        row = RuleRow(
            rule=rule.id,
            name=rule.name,
            severity=rule.severity,
            hosts=tuple(host for host, found in counts.items() if any(found)),
            without=tuple(host for host, found in counts.items() if not any(found)),
            domains=sum(bool(count) for found in counts.values() for count in found),
            findings=sum(map(sum, counts.values())),
        )
        rows.append(row)
    return tuple(sorted(rows, key=lambda row: (-row.severity.rank, -row.domains, row.rule)))


def table(found: Sequence[tuple[fleet.FleetHost, fleet.Address]]) -> RenderableType:
    rows = [
        (one.name, address.text if one.way == "ssh" else one.target, " ".join("=".join(each) for each in one.labels))
        for one, address in found
    ]
    return Table(["host", "reached at", *wide("labels")], rows)


NAMES_SHOWN = 6

VALUE_MAX = 60

SHOWN = {
    "kernel": "kernel.release",
    "CPUs": "cpu.online",
    "QEMU": "qemu.emulators.qemu-system-x86_64.version",
    "fio": "fio.program.version",
    "libvirt": "libvirt.daemon.version",
}


def probe_lines(
    facts: Sequence[fleet.HostAnswer[Mapping[str, str]]],
    differing: Sequence[Difference],
    lost: Sequence[fleet.Unreached],
) -> Iterator[str]:
    if facts:
        rows = ((one.host.name, *(_short(one.said.get(key, "-")) for key in SHOWN.values())) for one in facts)
        yield from columns([("host", *SHOWN), *rows])
    if len(facts) > 1:
        yield ""
        yield f"facts that differ between hosts: {len(differing)}"
        for one in differing:
            values = (f"{_short(each.value)} on {names(each.hosts)}" for each in one.values)
            yield f"  {printable(one.key)}: {'; '.join(values)}"
    yield from lost_lines(lost, len(facts))


def _short(value: str) -> str:
    return cut_text(printable(value), VALUE_MAX)


def audit_lines(audits: Sequence[fleet.HostAudit], lost: Sequence[fleet.Unreached]) -> Iterator[str]:
    yield from brief(*together(audits))
    rows = rules_over_hosts(audits)
    if len(rows) > 1 and len(audits) > 1:
        yield from ("", *columns(rows))
    yield from lost_lines(lost, len(audits))


def rules_over_hosts(audits: Sequence[fleet.HostAudit], *, named: bool = False) -> list[tuple[str, ...]]:
    """Return the heads and the rows of the table of rules; with `named` the name of each stands behind its id."""
    rows: list[tuple[str, ...]] = [("rule", "severity", "hosts", "VMs", "found on", "not on")]
    for row in rule_rows(audits):
        rule, counts = f"{row.rule} {row.name}" if named else row.rule, (str(len(row.hosts)), str(row.domains))
        rows.append((rule, row.severity.value, *counts, names(row.hosts), names(row.without) or "-"))
    return rows


def together(audits: Sequence[fleet.HostAudit]) -> tuple[list[Audited], list[Unread]]:
    return [vm for one in audits for vm in one.audited], [lost for one in audits for lost in one.unread]


def lost_lines(lost: Sequence[fleet.Unreached], answered: int) -> Iterator[str]:
    """Yield a line for each host without an answer, and how many gave one."""
    for one in lost:
        hint = f" ({one.hint})" if one.hint else ""
        yield printable(f"failed: {one.host.name}: {one.because}{hint}")
    yield f"{count_text(answered, 'host')} answered" + (f", {len(lost)} failed" if lost else "")


def columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows in columns, without blanks at the ends of lines."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def names(hosts: Sequence[str]) -> str:
    """Write some hosts: all of few, of many the first ones and their number."""
    if len(hosts) <= NAMES_SHOWN:
        return ", ".join(hosts)
    return f"{', '.join(hosts[: NAMES_SHOWN - 1])} and {len(hosts) - NAMES_SHOWN + 1} more"


TRAITS_SHOWN = 8

TOO_FEW_HOSTS = "too few hosts or rounds to tell"
"""The text in the place of an interval of a mean that is too wide."""


def report_lines(found: fleet.FleetReport) -> Iterator[str]:
    study = found.study
    arms = ", ".join(study.arm_names)
    yield printable(f"{arms} on {count_text(len(found.hosts), 'host')}: {BY_ID[study.metric].label}")
    if study.simulated:
        yield SIMULATED_ONLY
    if found.others:
        yield printable(others_words(found.others))
    for effect in found.effects:
        first, *more = effect_lines(effect, study.baseline)
        yield from ("", printable(first), *(printable(f"  {line}") for line in more))
    for level in found.levels:
        first, *more = level_lines(level)
        if level.refused is None:
            more += (*(f"  {line}" for line in trait_lines(level)), *columns(rank_rows(level)))
        yield from ("", printable(first), *(printable(f"  {line}") for line in more))


def others_words(hosts: Sequence[str]) -> str:
    return f"not in it: {names(hosts)}, where something else was measured"


def verdict_words(effect: fleet.FleetEffect) -> str:
    """Count the verdicts of the hosts: `better on 38 of 40 hosts, undecided on 2, worse on none`."""
    counts = Counter(one.verdict for one in effect.verdicts)
    first, *rest = sorted(Verdict, key=lambda one: -counts[one])
    said = [f"{first.value} on {counts[first]} of {count_text(len(effect.verdicts), 'host')}"]
    said += [f"{one.value} on {counts[one]}" for one in rest if counts[one]]
    return ", ".join(said + (["worse on none"] if not counts[Verdict.WORSE] else []))


def effect_lines(effect: fleet.FleetEffect, baseline: str) -> Iterator[str]:
    yield f"{effect.candidate} against {baseline} ({effect.workload}): {verdict_words(effect)}"
    if (pooled := effect.pooled) is not None:
        spread = change_words(math.exp(pooled.tau)).removeprefix("+")  # of logarithms, written as changes are
        varies = f"hosts vary by {spread}" if pooled.tau else "hosts vary by no more than noise"
        yield f"mean over hosts: {difference_text(pooled.ratio, TOO_FEW_HOSTS)}; {varies}"
        if (ratio := pooled.next_ratio) is not None:
            ends = (end_words(end, ratio.estimate) for end in (ratio.low, ratio.high))
            yield f"the next host: {' to '.join(ends)} ({format_share(pooled.confidence)})"
    yield from _group_lines(effect.group, effect.estimates)
    for one in (one for one in effect.points if one.odd):
        yield f"on {one.host} it is another: {change_words(one.ratio)} against the other hosts"
    if effect.left_out:
        yield f"left out, with too few rounds: {names(effect.left_out)}"


def level_lines(level: fleet.FleetLevel) -> Iterator[str]:
    yield f"level of {level.arm} ({level.workload})"
    if level.left_out:
        yield f"left out, with too few rounds: {names(level.left_out)}"
    if level.refused is not None:
        yield f"hosts are not compared: {level.refused}"
        return
    yield from _group_lines(level.group, level.estimates)
    odd = [one for one in level.points if one.odd]
    inner = max((one for one in level.points if not one.odd), key=lambda one: abs(one.distance), default=None)
    beside = "" if inner is None else f"; of the hosts that are not odd the furthest is {change_words(inner.ratio)}"
    for one in odd:
        p = f"adjusted p {one.adjusted:.2g}"
        yield f"odd: {one.host} is {change_words(one.ratio)} against the others ({p}{beside})"
    if not odd and not level.group:
        yield "no host is further from the others than noise and their own variation explain"


def _group_lines(group: Sequence[str], estimates: Sequence[fleet.HostEstimate]) -> Iterator[str]:
    if group:
        apart = fmean(one.value for one in estimates if one.host in group)
        apart -= fmean(one.value for one in estimates if one.host not in group)
        yield (
            f"two groups of hosts: {names(group)} are {change_words(math.exp(apart))} against the other"
            f" {len(estimates) - len(group)}, as two generations of hardware would be; a mean over both is neither's"
        )


def trait_lines(level: fleet.FleetLevel) -> Iterator[str]:
    """Yield what the odd hosts have and the others seldom have, the most telling first."""
    such = "of them" if level.group else "odd"
    for trait in level.traits[:TRAITS_SHOWN]:
        yield (
            f"{trait.key} = {trait.value} on {trait.odd_with} of {trait.odd} {such} and {trait.others_with} of"
            f" {count_text(trait.others, 'other')}; usual: {trait.usual}"
        )
    if (level.group or any(one.odd for one in level.points)) and not level.traits:
        yield "no recorded fact sets it apart"


def odd_words(host: str, points: Sequence[fleet.FunnelPoint]) -> str:
    """Say of a host that stands apart how far; nothing of others."""
    odd = (one for one in points if one.host == host and one.odd)
    return next((f"odd: {change_words(one.ratio)} against the others" for one in odd), "")


def rank_rows(level: fleet.FleetLevel) -> list[tuple[str, ...]]:
    points = {one.host: one for one in level.points}
    rows: list[tuple[str, ...]] = [("host", "rank", "against the others", "limits")]
    for one in level.ranks:
        ends, point = " to ".join(dict.fromkeys((f"{one.low}", f"{one.high}"))), points[one.host]
        rows.append((one.host, ends, change_words(point.ratio), limits_text(point.limit)))
    return rows


SAID_MAX = 120


class RunTable(NamedTuple):
    """A run in a table: the heads and a row for each task that is shown, how many tasks are in which state, and the
    next things to do.
    """

    rows: list[tuple[str, ...]]
    states: str
    hints: list[str]


def run_table(
    run: fleet.FleetRun,
    found: Mapping[str, fleet.TaskProgress],
    *,
    to_see_first: bool = False,
    most: int | None = None,
) -> RunTable:
    """Return the table of a run, with `most` of so many tasks; `to_see_first` begins with what there is to see."""
    shown = [(task.host.name, found.get(task.name, fleet.WAITING)) for task in run.tasks]
    states = [one.state for _, one in shown]
    if to_see_first:
        shown.sort(key=lambda one: _TO_SEE.index(one[1].state))
    rows: list[tuple[str, ...]] = [("host", "state", "trials", "left", "study", "verdict so far")]
    hints: dict[str, dict[str, None]] = {}
    for host, one in shown[:most]:
        trials = f"{one.done}/{one.total or '?'}" if one.done or one.total else "-"
        remains = "-" if one.left_seconds is None else format_seconds(one.left_seconds)
        study, said = (printable(text or "-", most=SAID_MAX) for text in (one.study, one.said or one.verdict))
        rows.append((host, one.state, trials, remains, study, said))
        hints.setdefault(one.hint, {})[host] = None
    return RunTable(
        rows=rows,
        states=", ".join(f"{states.count(state)} {state}" for state in fleet.TaskState if state in states),
        hints=[printable(f"{names([*hosts])}: {hint}") for hint, hosts in hints.items() if hint],
    )


def run_lines(
    run: fleet.FleetRun, found: Mapping[str, fleet.TaskProgress], left: float | None, *, most: int | None = None
) -> Iterator[str]:
    """Yield the table of a run, and how long what is left takes, in seconds. With `most` so many lines at most: of
    more hosts those of which there is something to see.
    """
    many = most is not None and len(run.tasks) > most - _OTHER_LINES
    room = max(1, most - _OTHER_LINES - 1) if most is not None and many else None
    table = run_table(run, found, to_see_first=many, most=room)
    yield from columns(table.rows)
    if room is not None and room < len(run.tasks):
        yield f"and {len(run.tasks) - room} more"
    yield table.states
    yield from table.hints
    if left:
        yield f"{AT_MOST}{format_seconds(left)} left"


AT_MOST = "at most about "
"""What stands before the time left: a verdict may come sooner."""


def run_title(run: fleet.FleetRun) -> str:
    """Say what a run runs on its hosts."""
    return printable(f"fleet {' '.join(run.words)}", most=SAID_MAX)


def planned_line(run: fleet.FleetRun, left: float | None, sharing: Mapping[str, Sequence[str]]) -> str:
    """Say what a run will do, before its first host is measured; `sharing` are hosts by the back end they share."""
    hosts = count_text(len({task.host.name for task in run.tasks}), "host")
    together = f", {run.at_once} at once" if run.at_once > 1 else ", one after the other"
    takes = f": measuring takes {AT_MOST}{format_seconds(left)}" if left else ""
    apart = [f"\nnever at once: {names(hosts)}, which share {one}" for one, hosts in sharing.items()]
    return printable(f"run {run.name}: {hosts}{together}{takes}{''.join(apart)}", keep="\n")


def ended_lines(
    run: fleet.FleetRun, found: Mapping[str, fleet.TaskProgress], drift: Sequence[fleet.HostDrift], place: str
) -> Iterator[str]:
    """Yield what is said when a run is over: the table, the drift of the reference host, and where to read on."""
    yield from run_lines(run, found, None)
    for one in drift:
        yield (
            f"reference host {run.reference}, {one.workload}: {change_words(one.estimate)} {one.metric} "
            f"({change_words(one.low)} to {change_words(one.high)}) after {one.hours:.1f} h"
        )
    each = (found.get(task.name, fleet.WAITING) for task in run.tasks)
    open_ = [task for task in each if task.state is not fleet.TaskState.FINISHED]
    wrong = all(task.code == UsageError.exit_code for task in open_)
    again = f"`virtune fleet run --again {run.name}` goes on"
    goes_on = "its words are wrong, so begin another run" if wrong else again
    if open_:
        yield f"{len(open_)} of {len(run.tasks)} not finished: {goes_on}"
    if len(open_) < len(run.tasks):
        yield f"studies: {place}; `virtune fleet report` says what they say together"


def runs_lines(found: Sequence[fleet.KeptRun], damaged: Sequence[str]) -> Iterator[str]:
    """Yield the table of the runs that are kept here."""
    yield from columns(runs_rows(found)) if found else ("no run is kept here: `virtune fleet run` makes one",)
    yield from (printable(f"the plan of the run {name} is damaged") for name in damaged)


def runs_rows(found: Sequence[fleet.KeptRun]) -> list[tuple[str, ...]]:
    """Return a row for each run, below the heads."""
    rows: list[tuple[str, ...]] = [("run", "begun (UTC)", "hosts", "finished", "failed", "open", "what")]
    for one in found:
        words, begun = printable(" ".join(one.run.words), most=SAID_MAX), one.run.created[:16].replace("T", " ")
        rows.append((one.run.name, begun, *map(str, (one.hosts, one.finished, one.failed, one.open)), words))
    return rows


FACTS_SHOWN = 8

_WEEK_SECONDS = 7 * 24 * 3600.0


def history_lines(found: fleet.FleetHistory) -> Iterator[str]:
    """Yield how the level of each host changed, those that did first."""
    study = found.study
    yield printable(f"{study.baseline}: {BY_ID[study.metric].label}, from study to study")
    if study.simulated:
        yield SIMULATED_ONLY
    if found.reference:
        yield printable(f"what {found.reference} did over time is taken out of the others")
    for one in sorted(found.hosts, key=lambda one: not one.changes):
        yield from host_history_lines(one)


def host_history_lines(one: fleet.HostHistory) -> Iterator[str]:
    """Yield how the level of a host changed, and what changed with it."""
    weeks = (one.levels[-1].begun - one.levels[0].begun).total_seconds() / _WEEK_SECONDS
    own = change_words(math.exp(one.spread)).removeprefix("+")
    count = count_text(len(one.changes), "change") if one.changes else "no change beyond its own variation"
    count = count if one.judged else "too few studies to say"
    studies = f"{len(one.levels)} studies in {weeks:.1f} weeks"
    yield printable(f"{one.host} ({one.workload}): {count}; {studies}, which vary by {own}")
    for change in one.changes:
        ends = f"{change_words(change.low)} to {change_words(change.high)}"
        yield f"  {change.begun:%Y-%m-%d}: {change_words(change.ratio)} ({ends}) from {change.study} on"
        for fact in change.facts[:FACTS_SHOWN]:
            before, after = (cut_text(value, VALUE_MAX) for value in (fact.before, fact.after))
            yield printable(f"    {fact.key}: {before} before, {after} after")
        if not change.facts:
            yield "    no recorded fact changed with it"
        elif len(change.facts) > FACTS_SHOWN:
            yield f"    and {len(change.facts) - FACTS_SHOWN} more facts"


_OTHER_LINES = 3
"""The heads of the columns, the states counted, and the time left."""

_TO_SEE = tuple(map(fleet.TaskState, ("stuck", "running", "lost", "killed", "failed", "finished", "waiting")))


def search_line(run: fleet.FleetRun, search: fleet.FleetSearch) -> str:
    """Say what a search will do, before its first turn."""
    apart = f"; {count_text(len(search.confirming), 'other')} will confirm the winner" if search.confirming else ""
    arms = count_text(len(search.arms), "configuration")
    return printable(f"search {run.name}: {arms} race on {count_text(len(search.racing), 'host')}{apart}")


def turn_line(run: fleet.FleetRun, known: fleet.FleetTuning | None, seconds: float | None) -> str:
    """Say what a turn does and how long it takes at most, and what was found before it; `run` has its tasks alone, or
    all those of a search that is gone on with, of which it is not known here what is over.
    """
    parts = [one.part for one in run.tasks]
    if not parts:
        return "the search is over: nothing more is measured"
    said = f"turn {max(parts) + 1} on {names([*dict.fromkeys(one.host.name for one in run.tasks)])}"
    if min(parts) < max(parts):
        return printable(f"going on: {said}")
    if known is not None and known.phase is fleet.FleetPhase.CONFIRM:
        said += f": {known.winner} against {known.search.baseline}, on fresh data"
    elif known is not None:
        left = len(known.standing.up_next)
        said += f": {left} of {len(known.search.arms)} left, {known.winner} leads"
    return printable(f"{said}; about {format_seconds(seconds)}" if seconds else said)


def tuned_lines(known: fleet.FleetTuning, found: Mapping[str, fleet.TaskProgress]) -> Iterator[str]:
    """Yield the result of a search over many hosts, the recommendation first."""
    search, settings = known.search, dict(known.search.arms)
    yield printable(tuned_claim(known))
    if known.winner is not None and known.winner != search.baseline:
        yield printable(f"  {', '.join(f'{name}={value}' for name, value in settings[known.winner])}")
    if known.simulated:
        yield SIMULATED_ONLY
    for effect in known.confirmed:
        yield from (printable(f"  {line}") for line in effect_lines(effect, search.baseline))
    if known.winner is not None:
        yield race_words(known)
    for one in known.better_there:
        yield printable(f"on {one.host} {one.arm} is better than {known.winner}: {difference_text(one.ratio)}")
    yield from ("", *columns(arm_rows(known)))
    for arm, hosts in search.left_out:
        yield printable(f"left out: {arm}, which {names(hosts)} cannot run")
    apart = f", confirmed on {names(search.confirming)}" if search.confirming else ", confirmed on the same hosts"
    yield printable(f"raced on {names(search.racing)}{apart if known.confirmed else ''}")
    tasks = {one.name: one.host.name for one in known.run.tasks}
    ill = [(tasks[name], one) for name, one in found.items() if one.state is not fleet.TaskState.FINISHED]
    yield from (printable(f"{host}: {one.state}: {one.said}", most=2 * SAID_MAX) for host, one in ill)
    if known.phase is not fleet.FleetPhase.OVER:
        yield f"`virtune fleet tune --again {known.run.name}` goes on"


def tuned_claim(known: fleet.FleetTuning) -> str:
    """Say in one sentence what a search over many hosts recommends."""
    search, winner = known.search, known.winner
    if winner is None:
        need = known.needs_seconds
        longer = "" if need is None else f": {search.metric} needs slices of {format_seconds(need)} (`--seconds`)"
        return f"no configuration gave a value that counts{longer}"
    if known.emulated:
        return f"undecided: {winner} led the race; these guests were emulated"
    if known.without:
        return f"undecided: {winner} led the race, and gave no value on {names(known.without)}"
    if known.phase is not fleet.FleetPhase.OVER:
        return f"ahead so far: {winner}, after {count_text(known.turns, 'turn')}"
    if winner == search.baseline:
        return f"keep {winner}: no other configuration is ahead of it on {count_text(len(known.hosts), 'host')}"
    if not known.confirmed:
        return f"ahead: {winner}; it was not confirmed on fresh data"
    took = "hosts that took no part in the race" if search.confirming else "the same hosts, on fresh data"
    match known.recommendation:
        case Recommendation.CHANGE:
            return f"change to {winner}: better than {search.baseline} on {took}"
        case Recommendation.KEEP:
            return f"keep {search.baseline}: {winner} led the race, and is no better on {took}"
        case _:
            return f"undecided: {winner} led the race; on {took} it is not settled whether it is better"


def race_words(known: fleet.FleetTuning) -> str:
    """Say how sure it is that the leader is the best, and of which hosts that is said."""
    of = "hosts of this kind" if known.of_their_kind else f"these {len(known.hosts)} hosts"
    distance = known.standing.distance
    most = "" if distance is None else f", at most {format_share(distance / (1 + distance), 1)} below the best"
    if known.certified:
        return f"the best of {len(known.search.arms)} configurations on {of}{most}"
    if known.more_hosts_only:
        why = "these hosts differ too much for more rounds to tell, and more hosts would"
    else:
        why = f"after {count_text(known.turns, 'turn')}"
    return f"not proved to be the best on {of}{most}: {why}"


def arm_rows(known: fleet.FleetTuning) -> list[tuple[str, ...]]:
    """Return the heads and the rows of the table of configurations, the leader first."""
    rows: list[tuple[str, ...]] = [("configuration", f"{BY_ID[known.search.metric].label} against it", "state")]
    for one in sorted(known.standing.runners, key=_behind):
        said = "-"
        if (contrast := one.against_leader) is not None:
            ends = (contrast.low, contrast.mean, contrast.high)
            low, estimate, high = sorted(math.exp(-known.search.sign * end) for end in ends)
            ratio = Interval(estimate=estimate, low=low, high=high, confidence=1 - RaceRules().error)
            said = difference_text(ratio, TOO_FEW_HOSTS)
        rows.append((one.arm, said, one.place.value))
    return rows


def _behind(one: Runner) -> tuple[bool, float]:
    return one.place is not Place.LEADER, 0.0 if one.against_leader is None else one.against_leader.mean


def refused_lines(refused: Mapping[str, fleet.TaskProgress]) -> Iterator[str]:
    """Yield the hosts that can take no part in a run, with why."""
    for host, one in refused.items():
        yield printable(f"{host} took no part: {one.said}{f' ({one.hint})' if one.hint else ''}", most=2 * SAID_MAX)
