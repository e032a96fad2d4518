# SPDX-License-Identifier: Apache-2.0
"""What was read, measured and done on many hosts, as JSON documents."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from virtune.model import fleet
from virtune.model.facts import Difference
from virtune.model.finding import NotLookedAt, Severity, Unread
from virtune.model.tuning import Place, Recommendation, Runner
from virtune.report.json.document import (
    IDENTITY,
    NOT_NEGATIVE,
    OR_NULL,
    SHARE,
    At,
    Moment,
    Name,
    ProgramVersion,
    part,
)
from virtune.report.pages.fleet import RuleRow, rule_rows


class _Facts(TypedDict):
    """One host."""

    name: Annotated[str, "Its name in the inventory.", At("host.name")]
    calls_itself: Annotated[str, "The host's own name, as `uname -n` says it."]
    facts: Annotated[
        Mapping[str, str],
        "What `virtune host probe --json` says there, as text by path (`disks.vda.device.scheduler`), without what "
        "changes from minute to minute and what is unknown.",
        At("said"),
    ]


class FleetProbeDocument(TypedDict):
    """What `virtune fleet probe --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/fleet-probe/1"}]
    virtune: ProgramVersion
    hosts: Annotated[list[_Facts], "The hosts that answered, in the order of the inventory."]
    differences: Annotated[
        Any, list[Difference], "Facts that differ, those first in which the fewest hosts stand apart."
    ]
    failed: Annotated[Any, list[fleet.Unreached], "The hosts that gave no answer."]


class _Finding(TypedDict):
    """What one rule says about one place."""

    rule: Annotated[
        str, "The rule's id; docs/reference/rules.md lists them.", {"pattern": "^R[0-9]+$"}, At("rule.id")
    ]
    severity: Annotated[
        Severity, "`error` and `warning` hold as they stand, `try` is worth measuring.", At("rule.severity")
    ]
    at: Annotated[str, "The disk (`vda`) or controller (`scsi:0`); empty for the VM."]
    seen: Annotated[str, "What was seen.", At("seen.seen")]
    advice: Annotated[str, "What to do, or what to try.", At("seen.advice")]


class _Domain(TypedDict):
    """One VM."""

    domain: Annotated[str, "The host's name in the inventory, a slash, and the name of the VM."]
    uuid: Annotated[str | None, "Its UUID; null where its configuration has none."]
    not_audited: Annotated[str | None, "Why the rules cannot judge its disks; null where they can.", OR_NULL]
    not_looked_at: Annotated[Any, list[NotLookedAt], "What rules could not look at, for want of a fact."]
    findings: Annotated[list[_Finding], "What was found, the most severe first."]


class _Audit(TypedDict):
    """One host."""

    name: Annotated[str, "Its name in the inventory.", At("host.name")]
    calls_itself: Annotated[str, "The host's own name, as `uname -n` says it."]
    domains: Annotated[list[_Domain], "Its VMs.", At("audited")]
    unread: Annotated[Any, list[Unread], "What could not be read there."]


class FleetAuditDocument(TypedDict):
    """What `virtune fleet audit --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/fleet-audit/1"}]
    virtune: ProgramVersion
    hosts: Annotated[list[_Audit], "The hosts that answered, in the order of the inventory."]
    rules: Annotated[
        Any, list[RuleRow], "The rules that found something, the most severe and the most frequent first."
    ]
    failed: Annotated[Any, list[fleet.Unreached], "The hosts that gave no answer."]


class _Listed(TypedDict):
    """One host."""

    name: Annotated[str, "Its name in the inventory."]
    target: Annotated[str, "What ssh is called with, `local`, or `kubectl:NAMESPACE/POD[/CONTAINER]`."]
    ssh_config: Annotated[str | None, "The ssh_config that ssh reads for it; null for the user's own.", At("config")]
    user: Annotated[str | None, "The user as whom ssh would log in; null where ssh does not reach it.", OR_NULL]
    address: Annotated[
        str | None, "The name or address to which ssh would connect; null as well.", At("host", or_null=True)
    ]
    port: Annotated[
        int | None, "The port to which ssh would connect; null as well.", {"minimum": 1, "maximum": 65535}, OR_NULL
    ]
    labels: Annotated[Mapping[str, str], "Its labels by their keys."]


class InventoryDocument(TypedDict):
    """What `virtune fleet inventory --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/fleet-inventory/1"}]
    virtune: ProgramVersion
    hosts: Annotated[list[_Listed], "The chosen hosts, in the order of the inventory."]


class FleetInstallDocument(TypedDict):
    """What `virtune fleet install --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/fleet-install/1"}]
    virtune: ProgramVersion
    hosts: Annotated[Any, list[fleet.Installed], "The hosts on which it was done, in the order of the inventory."]
    failed: Annotated[Any, list[fleet.Unreached], "The hosts on which it was not."]


class FleetApplyDocument(TypedDict):
    """What `virtune fleet apply --json` and `virtune fleet undo --json` write."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/fleet-apply/1"}]
    virtune: ProgramVersion
    change: Annotated[str, "The name of the change; `fleet undo` takes it.", At("name")]
    created: Annotated[Moment, "When it was made, in UTC."]
    words: Annotated[list[str], "The options of the change, as each host's `virtune apply` got them."]
    hosts: Annotated[Any, list[fleet.ChangedHost], "The hosts, in the order in which they were changed or undone."]


class GatherDocument(TypedDict):
    """What `virtune fleet gather --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/fleet-gather/1"}]
    virtune: ProgramVersion
    hosts: Annotated[Any, list[fleet.GatheredHost], "The hosts that answered, in the order of the inventory."]
    failed: Annotated[Any, list[fleet.Unreached], "The hosts that gave no answer."]


class _Task(TypedDict):
    """The study on one host."""

    name: Annotated[str, "Its name, by which its host finds it."]
    host: Annotated[Name, "The host's name in the inventory.", At("host.name")]
    part: Annotated[int, "Parts run one after the other: batches, and between them the reference host.", NOT_NEGATIVE]
    state: Annotated[
        fleet.TaskState,
        "`waiting`, `running`, `finished`, `failed`, `killed` (the next call resumes it), or `lost`: the host gives "
        "no answer, and the study may still run there.",
    ]
    study: Annotated[str | None, "The id of its study on that host; null before it has one.", OR_NULL]
    trials_done: Annotated[int, "Trials that are measured.", NOT_NEGATIVE, At("done")]
    trials: Annotated[int | None, "Trials that are planned; null where that is unknown.", At("total", or_null=True)]
    left_seconds: Annotated[float | None, "Expected time to its end; null where that is unknown."]
    verdict: Annotated[str | None, "The verdicts so far, in words; null before the first.", OR_NULL]
    code: Annotated[int | None, "The exit code on the host: 4 and 5 say that a condition is or may be breached."]
    because: Annotated[str | None, "Why it failed or was lost; null where it did not.", At("said", or_null=True)]


class FleetRunDocument(TypedDict):
    """What `virtune fleet run --json` and `virtune fleet status --json` write."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/fleet-run/1"}]
    virtune: ProgramVersion
    run: Annotated[str, "The name of the run; `fleet status` and `fleet run --again` take it.", At("name")]
    created: Annotated[Moment, "When it was begun, in UTC."]
    words: Annotated[list[str], "The verb and the options of the study."]
    reference: Annotated[
        str | None, "The host that is measured again in every other part; null without one.", OR_NULL
    ]
    tasks: Annotated[list[_Task], "The study on each host, in the order of the plan."]
    drift: Annotated[Any, list[fleet.HostDrift], "Of the reference host; empty without one, and of `fleet status`."]


class FleetReportDocument(TypedDict):
    """What `virtune fleet report --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/fleet-report/1"}]
    virtune: ProgramVersion
    metric: Annotated[str, "The main metric of the study.", At("study.metric")]
    baseline: Annotated[str, "The baseline.", At("study.baseline")]
    simulated: Annotated[bool, "Whether the figures are invented, for trying virtune itself.", At("study.simulated")]
    hosts: Annotated[list[Name], "The hosts."]
    others: Annotated[list[Name], "Hosts that are not in it: they have measured something else only."]
    effects: Annotated[Any, list[fleet.FleetEffect], "Each candidate against the baseline."]
    levels: Annotated[Any, list[fleet.FleetLevel], "The level of the baseline by workload."]


class _Raced(TypedDict):
    """One configuration."""

    arm: Annotated[str, "Its name."]
    settings: Annotated[Mapping[str, str], "Its settings."]
    state: Annotated[
        Place, At("place"), "`leader`, `open`, `parked` (as good within the margin), `eliminated` or `failed`."
    ]
    better_at_most: Annotated[
        float | None, "How much better than the leader it may be (0.1 = 10 %); null where there is no bound."
    ]


class _BetterThere(TypedDict):
    """A host on which another configuration is better than the winner by more than the margin."""

    host: Annotated[Name, "Its name in the inventory."]
    arm: Annotated[str, "The other configuration."]
    ratio: Annotated[float, "Other / winner.", At("ratio.estimate")]
    low: Annotated[float, "The lower end of its 95 % interval.", At("ratio.low")]
    high: Annotated[float, "The upper end.", At("ratio.high")]


class _LeftOut(TypedDict):
    """A configuration that not every host can run."""

    arm: Annotated[str, "Its name."]
    hosts: Annotated[list[Name], "The hosts that cannot."]


class FleetTuneDocument(TypedDict):
    """What `virtune fleet tune --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/fleet-tune/1"}]
    virtune: ProgramVersion
    run: Annotated[str, "The name of the search; `fleet tune --again` takes it.", At("run.name")]
    created: Annotated[Moment, "When it was begun, in UTC.", At("run.created")]
    words: Annotated[list[str], "The options of the search.", At("run.words")]
    phase: Annotated[fleet.FleetPhase, "What it does next; `over` at its end."]
    recommendation: Annotated[Recommendation, "Change to the winner, keep the baseline, or undecided."]
    winner: Annotated[str | None, "The configuration that leads; null before any value."]
    baseline: Annotated[str, "The baseline.", At("search.baseline")]
    metric: Annotated[str, "What is made better.", At("search.metric")]
    margin: Annotated[float, "The smallest relevant difference.", SHARE, At("search.margin")]
    simulated: Annotated[bool, "Whether the figures are invented, for trying virtune itself."]
    turns: Annotated[int, "Turns of the race so far.", NOT_NEGATIVE]
    certified: Annotated[bool, "Whether no other is better by more than the margin."]
    of_their_kind: Annotated[bool, "Whether that holds for hosts of this kind, not only for those that raced."]
    more_hosts_only: Annotated[bool, "Whether only more hosts would tell more."]
    racing: Annotated[list[Name], "The hosts that race.", At("search.racing")]
    confirming: Annotated[
        list[Name], "The hosts that confirm; empty where those that raced do.", At("search.confirming")
    ]
    arms: Annotated[list[_Raced], "The configurations that race."]
    confirmed: Annotated[Any, list[fleet.FleetEffect], "The winner against the baseline on fresh data, by workload."]
    better_there: Annotated[list[_BetterThere], "Hosts on which another is better."]
    left_out: Annotated[list[_LeftOut], "Configurations that not every host can run."]
    without: Annotated[list[Name], "Hosts on which the winner gave no value."]
    tasks: Annotated[list[_Task], "The studies, turn after turn."]


class _KeptRun(TypedDict):
    """One run."""

    run: Annotated[str, "The name of the run; `fleet status` and `fleet run --again` take it.", At("run.name")]
    created: Annotated[Moment, "When it was begun, in UTC.", At("run.created")]
    words: Annotated[list[str], "The verb and the options of the study.", At("run.words")]
    reference: Annotated[
        str | None, "The host that is measured again; null without one.", At("run.reference", or_null=True)
    ]
    hosts: Annotated[int, "Its hosts.", NOT_NEGATIVE]
    finished: Annotated[int, "Hosts whose studies are all finished.", NOT_NEGATIVE]
    failed: Annotated[int, "Hosts of which a study failed.", NOT_NEGATIVE]
    open: Annotated[int, "Hosts of which a study began and its end was not seen here.", NOT_NEGATIVE]


class FleetRunsDocument(TypedDict):
    """What `virtune fleet runs --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/fleet-runs/1"}]
    virtune: ProgramVersion
    runs: Annotated[list[_KeptRun], "The runs that are kept here, the newest last."]
    damaged: Annotated[list[str], "The names of runs whose plan is damaged."]


class FleetHistoryDocument(TypedDict):
    """What `virtune fleet history --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/fleet-history/1"}]
    virtune: ProgramVersion
    metric: Annotated[str, "The main metric of the study.", At("study.metric")]
    baseline: Annotated[str, "The baseline, whose level it is.", At("study.baseline")]
    simulated: Annotated[bool, "Whether the figures are invented, for trying virtune itself.", At("study.simulated")]
    reference: Annotated[str | None, "The host whose level is taken out of the others'; null without one.", OR_NULL]
    hosts: Annotated[Any, list[fleet.HostHistory], "Each host with more than one study, under each workload."]


def probe_document(
    answers: Sequence[fleet.HostAnswer[Mapping[str, str]]],
    differing: Sequence[Difference],
    lost: Sequence[fleet.Unreached],
) -> FleetProbeDocument:
    return part(FleetProbeDocument, hosts=answers, differences=differing, failed=lost)


def audit_document(audits: Sequence[fleet.HostAudit], lost: Sequence[fleet.Unreached]) -> FleetAuditDocument:
    return part(FleetAuditDocument, hosts=audits, rules=rule_rows(audits), failed=lost)


def inventory_document(found: Sequence[tuple[fleet.FleetHost, fleet.Address]]) -> InventoryDocument:
    return part(InventoryDocument, hosts=[_inventoried(*one) for one in found])


def _inventoried(host: fleet.FleetHost, place: fleet.Address) -> _Listed:
    return part(_Listed, host, place)


def install_document(done: Sequence[fleet.Installed], lost: Sequence[fleet.Unreached]) -> FleetInstallDocument:
    return part(FleetInstallDocument, hosts=done, failed=lost)


def apply_document(change: fleet.FleetChange, found: Sequence[fleet.ChangedHost]) -> FleetApplyDocument:
    return part(FleetApplyDocument, change, hosts=found)


def gather_document(hosts: Sequence[fleet.GatheredHost], lost: Sequence[fleet.Unreached]) -> GatherDocument:
    return part(GatherDocument, hosts=hosts, failed=lost)


def run_document(
    run: fleet.FleetRun, found: Mapping[str, fleet.TaskProgress], drift: Sequence[fleet.HostDrift] = ()
) -> FleetRunDocument:
    tasks = [_task(task, found.get(task.name, fleet.WAITING)) for task in run.tasks]
    return part(FleetRunDocument, run, tasks=tasks, drift=drift)


def tune_document(known: fleet.FleetTuning, found: Mapping[str, fleet.TaskProgress]) -> FleetTuneDocument:
    settings = dict(known.search.arms)
    arms = [_raced(one, dict(settings[one.arm])) for one in known.standing.runners]
    left_out = [part(_LeftOut, arm=arm, hosts=hosts) for arm, hosts in known.search.left_out]
    tasks = run_document(known.run, found)["tasks"]
    return part(FleetTuneDocument, known, arms=arms, left_out=left_out, tasks=tasks)


def _raced(one: Runner, settings: Mapping[str, str]) -> _Raced:
    return part(_Raced, one, settings=settings)


def _task(task: fleet.FleetTask, found: fleet.TaskProgress) -> _Task:
    waits = found.state is fleet.TaskState.WAITING and found.left_seconds is None
    return part(_Task, task, found, left_seconds=task.expected_seconds if waits else found.left_seconds)


def runs_document(found: Sequence[fleet.KeptRun], damaged: Sequence[str]) -> FleetRunsDocument:
    return part(FleetRunsDocument, runs=found, damaged=damaged)


def history_document(found: fleet.FleetHistory) -> FleetHistoryDocument:
    return part(FleetHistoryDocument, found)


def report_document(found: fleet.FleetReport) -> FleetReportDocument:
    return part(FleetReportDocument, found)
