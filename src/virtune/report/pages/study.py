# SPDX-License-Identifier: Apache-2.0
"""What a study was: where it ran, its arms, their verified settings, its options; and the list of studies."""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from virtune import __version__
from virtune.model.evidence import UNDER_LOAD, Check, Damaged, Listed, unverified
from virtune.model.remark import UNVERIFIED
from virtune.model.result import ArmSummary, Result
from virtune.model.stack import MEMORY
from virtune.model.study import Arm, Study
from virtune.model.study_options import OPTIONS, Provenance, flag_of
from virtune.model.text import format_bytes, format_seconds
from virtune.report.render.terminal import FirstThatFits, Paragraph, Table, heading, pasted, right, wide
from virtune.report.reproduce import AGAIN
from virtune.report.words import count_text, names_text


def host_line(study: Study, facts: str, programs: Collection[str] = ()) -> str:
    """Name the host, the programs and the disk, by the facts that were stored when the study began; `programs` are
    those that loaded it, where trials noted them.
    """
    try:
        said = [*_host(study, json.loads(facts)["host"] if facts else {}, programs)]
    except (ValueError, LookupError, TypeError, AttributeError):  # from another version of virtune, or damaged
        said = ["host recorded in another form"]
    return ", ".join([*said, f"virtune {__version__}"])


def host_words(study: Study, facts: str) -> str:
    """Name the host in a few words: its CPU, kernel, QEMU and disk, and whether it is itself a VM."""
    line = host_line(study, facts)
    for long, short in _SHORTER:
        line = long.sub(short, line)
    return line


_SHORTER = (
    (re.compile(r", VMs? with [^,]*|, a VM (?:that only runs the load, without an operating system|with Linux)"), ""),
    (re.compile(r"\((?:R|TM)\)| CPU @ \S+| \d+-Core Processor|, loaded by [^,]+|, fio [^,]+|, virtune \S+$"), ""),
    (re.compile(r"(Linux \d+\.\d+)[^,]*"), r"\1"),
    (re.compile(r"\([^()]*(; this host is itself a VM)\)"), r"\1"),
    (re.compile(r" ?; this host is itself a VM"), ", itself a VM"),
)
"""What a short form says of a host in fewer words, or not."""


def host_text(facts: str) -> str:
    """Return the facts of a host, as they were read at the start of a study, as indented JSON."""
    try:
        return json.dumps(json.loads(facts), indent=1)
    except ValueError:
        return "not recorded"


def is_vm(facts: str) -> bool:
    """Whether the host was itself a VM, by its facts as JSON; False where they do not say."""
    try:
        return bool(facts) and _is_vm(json.loads(facts)["host"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return False


def _is_vm(host: dict[str, Any]) -> bool:
    found = host.get("virtualization", {}).get("hypervisor")
    return isinstance(found, str) and found != "none"


def _host(study: Study, host: dict[str, Any], programs: Collection[str]) -> Iterator[str]:
    if not host:
        unknown = "measured elsewhere" if study.imported else "host not recorded"
        yield "hosts as in its studies" if study.sources else unknown
        return
    cpu = host["cpu"]
    count = "? CPUs" if cpu["online"] is None else count_text(cpu["online"], "CPU")
    yield f"{cpu['model'] or 'CPU unknown'} ({count})"
    yield f"Linux {host['kernel']['release']}"
    yield from _qemu(study, host["qemu"])
    others = [program for program in sorted(programs) if not program.startswith("fio")]
    fio = host["fio"]["program"]
    if fio is not None and (not others or len(others) < len(programs)):
        yield f"fio {str(fio['version']).removeprefix('fio-')}"
    if others:
        yield f"loaded by {' and '.join(others)}"
    yield _disk(study, host)


def _qemu(study: Study, qemu: dict[str, Any]) -> Iterator[str]:
    """Name the QEMU that the rigs of this study run; a domain's own QEMU is unknown here, and of a named program the
    version is among the verified settings.
    """
    kinds = [arm.stack.kind for arm in study.arms]
    run = dict.fromkeys(arm.stack.machine.emulator for arm in study.arms if arm.stack.kind.own_guest)
    daemon = qemu["storage_daemon"] if any("qemu-storage-daemon" in kind.programs for kind in kinds) else None
    emulator = next(iter(qemu["emulators"] or ()), None) if None in run else None
    versions = dict.fromkeys(one["version"] for one in (daemon, emulator) if one is not None and one["version"])
    if versions:
        yield f"QEMU {', '.join(versions)}"
    yield from (f"QEMU {program}" for program in run if program is not None)
    bare = {arm.stack.machine.is_bare for arm in study.arms if arm.stack.kind.own_guest}
    if len(bare) > 1:
        yield "VMs with Linux and without an operating system"
    elif bare:
        yield "a VM that only runs the load, without an operating system" if bare.pop() else "a VM with Linux"


def _disk(study: Study, host: dict[str, Any]) -> str:
    if study.targets:
        return f"target{'' if len(study.targets) == 1 else 's'} {names_text(study.targets.values(), 3)}"
    if study.volume is not None:
        return f"a scratch volume in {study.volume.words}"
    backing = host["scratch"]["backing"]
    if not backing["devices"]:
        return f"disk unknown ({backing['filesystem'] or backing['gap']})"
    name = backing["devices"][-1]["name"]
    device = next((disk["device"] for disk in host["disks"] if disk["device"]["name"] == name), None)
    what = device and (device["model"] or device["driver"])
    itself = "; this host is itself a VM" if _is_vm(host) else ""
    return f"disk {name} ({f'{what}, ' if what else ''}{backing['filesystem']}{itself})"


VM_COST = (
    "the figures include what the virtio queues cost, and not what a VM itself costs (its kernel, VM exits,"
    " interrupts)"
)
"""What the figures of a disk that is loaded through virtio queues without a VM have in them."""

_IN_A_VM = "this host is itself a VM, so that is this VM's own disk and not bare metal"

_ARMS_MAX = 12
"""The most arms whose settings are named in a line."""


def arm_lines(study: Study, facts: str = "") -> Iterator[str]:
    """Yield a line for each way in which arms are run; `facts` are those of the host, as JSON."""
    groups: dict[str, list[Arm]] = {}
    for arm in study.arms:
        if arm.stack.kind.made_here:
            groups.setdefault(_what_runs(arm, study, facts), []).append(arm)
    for what, arms in groups.items():
        # what runs the stack is said beside the settings; those of a single arm stand behind its name
        every = [
            [f"{name}={value}" for name, value in (*arm.settings, *arm.options) if name != "rig"] for arm in arms
        ]
        shared = [word for word in every[0] if len(arms) > 1 and all(word in words for words in every)]
        own = [", ".join(word for word in words if word not in shared) for words in every]
        names = [f"{arm.name} ({words})" if words else arm.name for arm, words in zip(arms, own, strict=True)]
        word, verb = ("arms", "are") if len(arms) > 1 else ("arm", "is")
        told = f", each with {', '.join(shared)}" if shared else ""
        stack = arms[0].stack
        told += f"; guests {guests}" if (guests := guest_words(arms)) else ""
        cost = f"; {VM_COST}" if stack.kind.front == "export" and stack.export == "vhost-user-blk" else ""
        yield f"{word} {names_text(names, _ARMS_MAX)} {verb} {what}{told}{cost}"


def guest_words(arms: Sequence[Arm]) -> str:
    """Say which vCPUs and which memory the guests of arms have; empty where virtune makes none."""
    guests: dict[str, list[str]] = {}
    for arm in arms:
        stack = arm.stack
        if stack.kind.own_guest:
            memory = format_bytes(stack.machine.memory or MEMORY)
            each = f"{count_text(stack.machine.cpus, 'vCPU')} and {memory}"
            guests.setdefault(each if stack.guests == 1 else f"{stack.guests} x {each} each", []).append(arm.name)
    if len(guests) < 2:
        return "".join(f"{'each ' if len(names) > 1 else ''}with {each}" for each, names in guests.items())
    return "; ".join(f"of {', '.join(names)} with {each}" for each, names in guests.items())


def vm_cost_notes(study: Study) -> Iterator[str]:
    """Yield the same of what virtio queues measure, where no line says what the arms are."""
    if any(arm.stack.kind.front == "export" and arm.stack.export == "vhost-user-blk" for arm in study.arms):
        yield f"loaded through virtio queues without a VM: {VM_COST}"


def _what_runs(arm: Arm, study: Study, facts: str) -> str:
    stack = arm.stack
    what = stack.kind.meaning(stack.export if stack.kind.front == "export" else None)
    if stack.kind.front == "file":
        path = study.targets.get(stack.place)
        what = what if path is None else f"{path}, opened without QEMU"
        return f"{what}; {_IN_A_VM}" if is_vm(facts) else what
    if stack.kind.own_guest:
        inside = "only the load runs in it, without an operating system"
        return f"{what}; {inside if stack.machine.is_bare else 'the load runs in it, in Linux'}"
    return f"{what} ({stack.domain})" if stack.domain else what


def first_read_lines(study: Study) -> Iterator[str]:
    """Yield a line for each time that the images of a study were read, or were not, before trials of it."""
    for one in study.first_reads:
        what = "the target was" if study.targets and one.images == 1 else "the scratch image was"
        if one.images > 1:
            what = f"the {count_text(one.images, 'image')} were"
        when = f"when it went on after {count_text(one.after, 'trial')}" if one.after else "before the first trial"
        read = format_bytes(one.read_bytes)
        if not one.read_bytes:
            yield f"{what} not read {when}: {one.why}"
        elif one.why:
            yield f"{what} read once {when} ({read} of {format_bytes(one.size_bytes)}, then {one.why})"
        else:
            yield f"{what} read once {when} ({read} in {format_seconds(one.seconds)})"


def in_service_lines(study: Study) -> Iterator[str]:
    """Yield a line for each disk that was written in full, and each load that ran until it was steady."""
    for disk in study.preconditioned:
        yield f"{study.disk_words(study.arm(disk.arm).stack)} was {disk.words}"
    yield from (load.words for load in study.steadied)


def option_lines(study: Study) -> Iterator[str]:
    if not study.options:
        yield "where options came from was not kept with this study"
        return
    room = max(len(flag_of(one.name)) for one in study.options if one.name in OPTIONS)
    for one in study.options:
        known = OPTIONS.get(one.name)  # a later virtune may have dropped it
        why = f": {known.why}" if known and known.why and one.source is Provenance.DEFAULT else ""
        flag = flag_of(one.name) if known else one.name
        yield f"{flag:<{room}}  {one.value}  ({one.source}{why})"


_STYLES = {"ok": "green", "NOT": "red", "unverified": "red", "partly": "yellow", "?": "yellow"}


def verified(result: Result) -> list[RenderableType]:
    rows = []
    for arm in result.study.arms:
        for workloads, mark, words in _verified_lines(result, arm):
            name = Text(arm.name, style="bold").append(f"\n{workloads}" if workloads else "", style="not bold")
            rows.append((name, Text(mark, style=_STYLES[mark]), words))
    title = heading("Verified settings", Text("  read back from what ran", style="not bold dim"))
    return [title, Table(["", "", *wide("", least=40)], rows, indent=2)] if rows else []


def settings_of(result: Result) -> Iterator[tuple[str, str, str]]:
    """Yield for each arm its name, whether its settings were verified, and the settings in one line."""
    for arm in result.study.arms:
        for workloads, mark, words in _verified_lines(result, arm):
            where = f" ({workloads})" if workloads else ""
            yield f"{arm.name}{where}", mark, words.plain.replace("\n", "; ")


def not_verified(result: Result) -> dict[tuple[str, ...], list[str]]:
    """Return the settings that were not verified (or had another value), with their arms."""
    found: dict[tuple[str, ...], list[str]] = {}
    for arm in result.study.arms:
        wrong: dict[str, None] = {}
        for summary in (one for one in result.arms if one.arm == arm.name and one.in_force):
            wrong |= {f"{c.setting}={c.asked} is {c.found}": None for c in summary.in_force if c.agrees is False}
            wrong |= dict.fromkeys(unverified(arm.stack, summary.in_force))
        if wrong:
            found.setdefault(tuple(wrong), []).append(arm.name)
    return found


def unverifiable(result: Result) -> dict[str, list[str]]:
    """Return the settings that were requested of some arm and whose present value nothing shows, with these arms."""
    found: dict[str, dict[str, None]] = {}
    for one in result.arms:
        for check in _hidden(result.study.arm(one.arm), one):
            found.setdefault(check.setting, {})[one.arm] = None
    return {setting: list(arms) for setting, arms in found.items()}


def all_checks(result: Result) -> RenderableType:
    rows = []
    for arm in result.study.arms:
        every = [check for summary in result.arms if summary.arm == arm.name for check in summary.in_force]
        # each once, over all workloads; those of different guests are kept apart
        once = {(one.guest, one.setting, one.asked, one.found, UNDER_LOAD in one.proof): one for one in every}
        for check in once.values():
            mark = {True: "ok", False: "NOT", None: "?"}[check.agrees]
            found = "cannot be verified" if check.found is None else check.found
            name = arm.name if arm.stack.guests == 1 else f"{arm.name}, guest {check.guest + 1}"
            rows.append((name, mark, f"{check.setting}={check.asked}", found, check.proof))
    return Table(["arm", "", "requested", "found", *wide("proof")], rows)


def _verified_lines(result: Result, arm: Arm) -> Iterator[tuple[str, str, Text]]:
    """Yield each line of an arm: its workloads, where they differ, its mark, and its settings."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for summary in result.arms:
        if summary.arm == arm.name and summary.in_force:
            found.setdefault(_verified(arm, summary), []).append(summary.workload)
    for (mark, *words), workloads in found.items():
        styled = zip(words, ("", "red", "yellow"), strict=True)
        text = Text("\n").join(Text(word, style=style) for word, style in styled if word)
        yield ", ".join(workloads) if len(found) > 1 else "", mark, text


def _hidden(arm: Arm, summary: ArmSummary) -> list[Check]:
    """Return the checks of what was requested and cannot be seen."""
    seen = {check.setting for check in summary.in_force if check.found is not None}
    named = {text.partition("=")[0] for text in unverified(arm.stack, summary.in_force)}
    return [one for one in summary.in_force if one.setting not in seen | named]


def _verified(arm: Arm, summary: ArmSummary) -> tuple[str, str, str, str]:
    """Return the mark of an arm under a workload, and what was seen, what was not, and what cannot be."""
    checks = summary.in_force
    seen = {check.setting: check for check in checks if check.found is not None}
    unseen = unverified(arm.stack, checks)
    hidden = dict.fromkeys(f"{one.setting}={one.asked}" for one in _hidden(arm, summary))
    rejected = any(one.remark.id == UNVERIFIED.id for one in summary.remarks)
    marks = {
        "NOT": any(check.agrees is False for check in checks),
        "unverified": bool(unseen) or rejected,
        "?": not seen,
        "partly": bool(hidden),
    }
    # the cache mode implies no-flush, and a default says little
    silent = {("disk.detect_zeroes", "off")}
    told = [one for name, one in seen.items() if name != "cache.no-flush" and (name, one.found) not in silent]
    return (
        next((mark for mark, holds in marks.items() if holds), "ok"),
        ", ".join(f"{one.setting.removeprefix('disk.')}={one.found}" for one in told),
        f"requested, and not seen: {', '.join(unseen)}" if unseen else "",
        f"requested, cannot be verified: {', '.join(hidden)}" if hidden else "",
    )


def listing(studies: Sequence[Listed | Damaged], *, store: str) -> RenderableType:
    """Lay out one line per study, and below them one for each that cannot be read."""
    table = Table(["study", "created", "kind", *wide("arms", "workloads", least=16), *right("trials")])
    for listed in studies:
        if isinstance(listed, Damaged):
            continue
        study = listed.study
        # a search chooses its trials as it goes, so their total number is unknown
        total = "" if study.search is not None else f"/{study.most_trials(finished=listed.finished) or '?'}"
        trials = Text(f"{listed.done}{total}", style="" if listed.finished else "yellow")
        if listed.failed:
            trials.append(f" ({listed.failed} failed)", style="red")
        created = study.begun.removesuffix(" UTC")
        arms = f"{study.words} ({arms_text(study)})" if study.words else arms_text(study)
        table.add_row(listed.name, created, study.label, arms, workloads_text(study), trials)
    lost = [study for study in studies if isinstance(study, Damaged)]
    damaged = [Text(f"damaged in {store}: {study.id}: {study.why}", style="red") for study in lost]
    # an id begins with the time, so that a narrow terminal goes without it rather than without a table
    return Group(*([FirstThatFits([table], [table.only(0, 2, 3, 4, 5)])] if table.rows else []), *damaged)


def to_repeat(command: str) -> list[RenderableType]:
    about = Paragraph(Text(AGAIN, style="dim"), indent=2)
    return [heading("to repeat it"), about, pasted(command)] if command else []


def time_words(study: Study) -> str:
    """Write how long a trial is measured; a job may say itself when it ends."""
    seconds = format_seconds(study.seconds)
    if any(one.counted for one in study.workloads):
        return f"{seconds}, or as long as number_ios takes"
    return f"at most {seconds}" if any(one.ends_itself for one in study.workloads) else seconds


def arms_text(study: Study) -> str:
    """Write what a study compares; of a search how many configurations, and its goal."""
    if study.search is not None:
        return f"{len(study.search.ranked)} configurations, {study.search.goal.words}"
    return ", ".join(study.arm_names)


def workloads_text(study: Study) -> str:
    """Write the workloads of a study; of a sweep the one that is offered, and at how many loads."""
    if study.sweep is not None:
        return f"{study.workloads[0].name} at {count_text(len(study.compared), 'load')}"
    return ", ".join(workload.name for workload in study.workloads)
