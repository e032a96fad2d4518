# SPDX-License-Identifier: Apache-2.0
"""VMs as text: their disks, what an audit found of them, and what would be changed."""

import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from virtune.model.domain import DomainDisk, aio_of, cache_of
from virtune.model.finding import Advice, Audited, Finding, Need, PassedOver, Severity, Subject, Unread
from virtune.model.knob import Risk
from virtune.model.text import printable
from virtune.report.words import count_text, names_text

IN_FILES = "\t\r"
"""Control characters of configuration files that a diff keeps, because it could not be applied otherwise."""


def tag(way: str, risk: Risk) -> str:
    """Return what a change takes and risks: ` [power-off; risks data]`; empty for nothing."""
    said = [word for word in (way, f"risks {risk.value}" if risk is not Risk.NONE else "") if word]
    return f" [{'; '.join(said)}]" if said else ""


def advice_lines(domain: str, advice: Advice, ways: Sequence[str] | None = None) -> Iterator[str]:
    """Yield the advice for one domain; `ways` say how each change becomes effective, if that is known for this VM."""
    turns, ways = advice.turns, ways if ways is not None else [takes.value for takes, _ in advice.effects]
    yield printable(f"{domain}: {count_text(len(turns), 'change') if turns else 'nothing to change'}")
    for turn, way, (_, risk) in zip(turns, ways, advice.effects, strict=True):
        place = f"@{turn.at}" if turn.at else ""
        value = "(removed)" if turn.value is None else turn.value
        yield printable(f"  {turn.knob}{place} = {value}  {tag(way, risk)}")
    if turns:
        yield from (printable(f"  warning: {one.text}") for one in advice.warnings)
        yield from (printable(line, keep=IN_FILES) for line in (advice.diff.split("\n") if advice.diff else ()))
        yield from (printable(f"  $ {command}") for command in advice.commands)
    yield from (printable(f"  left alone: {one.text}") for one in advice.left)


WIDTH = 100
"""What a sentence is broken at outside a terminal, and in a wider one."""

SHOWN_IN_FULL = 40
"""The most findings that are shown one by one; more are counted by rule, with the first places of each."""

PLACES_SHOWN = 4
ROWS_MAX = 100
"""The rows of the table of VMs; `--brief` has no bound."""

LINE_MAX = 400
"""The longest line of a diff that is shown: a file in one line gives no readable diff."""

_SEVERITIES = tuple(reversed(Severity))


def page(
    audited: Sequence[Audited], unread: Sequence[Unread], passed: Sequence[PassedOver] = (), *, width: int = WIDTH
) -> Iterator[str]:
    """Yield the lines of the page: of several VMs a table first, then the findings, in full while they are few.

    Sentences are broken at `width`, at most WIDTH; lines that are to be pasted never.
    """
    width = min(width, WIDTH)
    count = sum(len(one.findings) for one in audited)
    if len(audited) > 1 and count:
        yield from _table(audited)
        yield ""
    if count <= SHOWN_IN_FULL:
        explained: set[str] = set()
        for one in audited:
            if one.findings or len(audited) == 1:
                yield from _domain(one, explained, width)
    else:
        yield from _by_rule(audited, width)
    yield from _end(audited, unread, passed, width)


def brief(audited: Sequence[Audited], unread: Sequence[Unread], passed: Sequence[PassedOver] = ()) -> Iterator[str]:
    """Yield a table of VMs and rules: how often each rule found something in each VM."""
    rules = {finding.rule.id: finding.rule for one in audited for finding in one.findings}
    columns = sorted(rules, key=lambda name: (-rules[name].severity.rank, name))
    found = [one for one in audited if one.findings]
    width = max((len(printable(one.domain)) for one in found), default=0)
    if found:
        yield f"{'VM':<{width}}  {' '.join(f'{name:>4}' for name in columns)}"
    for one in found:
        counts = Counter(finding.rule.id for finding in one.findings)
        cells = " ".join(f"{counts[name] or '.':>4}" for name in columns)
        yield f"{printable(one.domain):<{width}}  {cells}"
    for name in columns:
        yield f"{name:<5}{rules[name].severity.value:<8} {rules[name].name}"
    yield from _end(audited, unread, passed, WIDTH)


def summary(audited: Sequence[Audited], unread: Sequence[Unread]) -> str:
    """Return the last line: how many domains were audited and how many were not, and the findings by severity.

    "Nothing found" is said of audited domains only.
    """
    counts = Counter(finding.rule.severity for one in audited for finding in one.findings)
    said = [
        f"{counts[one]} to try" if one is Severity.TRY else count_text(counts[one], one.value)
        for one in _SEVERITIES
        if counts[one]
    ]
    unknown = sum(bool(one.not_audited) for one in audited)
    found = f"{count_text(len(audited) - unknown, 'domain')} audited"
    found += f", {unknown:,} not audited" if unknown else ""
    if said or len(audited) > unknown:
        found += f": {', '.join(said) or 'nothing found'}"
    return f"{found}; {len(unread):,} not read" if unread else found


def _end(
    audited: Sequence[Audited], unread: Sequence[Unread], passed: Sequence[PassedOver], width: int
) -> Iterator[str]:
    """What was not looked at, then the last line."""
    reasons: dict[str, list[str]] = {}
    for one in audited if len(audited) > 1 else ():
        if one.not_audited:
            reasons.setdefault(one.not_audited, []).append(one.domain)
    for because, names in reasons.items():
        yield printable(f"not audited: {because}: {names_text(names, PLACES_SHOWN)}")
    for lost in unread:
        yield printable(f"not read: {lost.origin}: {lost.because}")
    for over in passed:
        more = ", ..." if over.count > len(over.names) else ""
        yield printable(
            f"no VM: {over.count:,} of {over.files:,} files of {over.origin}: {', '.join(over.names)}{more}"
        )
    yield from _not_looked_at(audited, width)
    yield summary(audited, unread)


def _not_looked_at(audited: Sequence[Audited], width: int) -> Iterator[str]:
    """The facts that rules lacked, each with the rules, in one sentence for all domains."""
    lacked = Counter((one.unknown, one.rules) for vm in audited for one in vm.not_looked_at)
    parts = [
        f"{unknown}: {' '.join(rules)}" + (f" ({count_text(count, 'domain')})" if len(audited) > 1 else "")
        for (unknown, rules), count in lacked.items()
    ]
    text = f"rules that could not look, or not at everything, and what they lack: {'; '.join(parts)}"
    if any(unknown == Need.CPUS for unknown, _ in lacked):  # which --here always knows
        text += ". On the VM's host `virtune audit --here` looks at them"
    if parts:
        yield from textwrap.wrap(printable(text), width, subsequent_indent="  ", break_on_hyphens=False)


def _table(audited: Sequence[Audited]) -> Iterator[str]:
    found = [one for one in audited if one.findings]
    counts = {id(one): Counter(finding.rule.severity for finding in one.findings) for one in found}
    found.sort(key=lambda one: [-counts[id(one)][severity] for severity in _SEVERITIES])
    width = min(40, max(len(printable(one.domain)) for one in found))
    yield f"{'VM':<{width}}  error  warning  try  rules"
    for one in found[:ROWS_MAX]:
        error, warning, tries = (counts[id(one)][severity] or "." for severity in _SEVERITIES)
        rules = " ".join(dict.fromkeys(finding.rule.id for finding in one.findings))
        yield f"{printable(one.domain):<{width}}  {error:>5}  {warning:>7}  {tries:>3}  {rules}"
    if len(found) > ROWS_MAX:
        yield f"and {len(found) - ROWS_MAX:,} more with findings; `--brief` lists all"
    if without := sum(not one.findings and not one.not_audited for one in audited):
        yield f"{count_text(without, 'audited domain')} without findings"


def _domain(one: Audited, explained: set[str], width: int) -> Iterator[str]:
    where = f"{one.domain}  ({one.origin})"
    if one.not_audited:
        where = f"{where}: not audited: {one.not_audited}"
    elif not one.findings:
        where += ": nothing found" if one.disks else ": it has no disk with data to look at"
    yield printable(where)
    if not one.findings:
        return
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for finding in one.findings:
        seen = finding.seen
        key = (finding.rule.id, seen.seen, seen.advice, finding.takes, finding.risk, finding.measured)
        alike.setdefault(key, []).append(finding)
    for some in alike.values():
        yield from _findings(some, explained, width)
    yield from _change(one)
    yield ""


def _findings(some: Sequence[Finding], explained: set[str], width: int) -> Iterator[str]:
    """The findings of one rule with the same text at one or several places; its reason is given once on a page."""
    finding = some[0]
    rule, seen = finding.rule, finding.seen
    place = ", ".join(one.at or "domain" for one in some)
    lines = ", ".join(str(one.line) for one in some)
    where = f"line{'' if len(some) == 1 else 's'} {lines}"
    yield printable(f"  {rule.severity.value:<8}{rule.id:<5}{place:<8} {seen.seen}   ({where})")
    word = "worth measuring" if rule.severity is Severity.TRY else "do"
    advice = f"{word}: {seen.advice}{tag(finding.takes.value if finding.takes else '', finding.risk)}"
    for text in (*(() if rule.id in explained else (rule.why,)), advice, *finding.measured):
        yield from _wrapped(text, width)
    explained.add(rule.id)
    for command in dict.fromkeys(one.seen.measure for one in some if one.seen.measure):
        yield f"          $ {printable(command)}"


def _change(one: Audited) -> Iterator[str]:
    """The diff of all errors and warnings together, and the command that shows that of the rest."""
    lines = one.diff.split("\n")[2:]
    if any(len(line) > LINE_MAX for line in lines):
        mended = [found for found in one.findings if found.rule.severity is not Severity.TRY]
        turns = [turn for finding in mended for turn in finding.seen.turns]
        said = (f"{turn.knob}{'@' if turn.at else ''}{turn.at}={turn.value or ''}" for turn in turns)
        lines = [f"all of the file is one line; the change: {', '.join(dict.fromkeys(said))}"]
    if lines or one.commands:
        yield "  the change for errors and warnings:"
    yield from (f"    {printable(line, keep=IN_FILES)}" for line in lines)
    yield from (f"    $ {printable(command)}" for command in one.commands)
    tries = dict.fromkeys(
        finding.rule.id for finding in one.findings if finding.rule.severity is Severity.TRY and finding.seen.turns
    )
    if tries and one.written:
        from_libvirt = "://" in one.origin or one.origin.endswith(":")
        place = ["--connect", one.origin, "--domain", one.domain] if from_libvirt else [one.origin]
        words = ["virtune", "apply", "advise", *(word for name in tries for word in ("--rule", name)), *place]
        yield f"  what the tries would change: $ {printable(shlex.join(words))}"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(printable(text), width, initial_indent=" " * 10, subsequent_indent=" " * 10)


def _by_rule(audited: Sequence[Audited], width: int) -> Iterator[str]:
    places: dict[str, list[Finding]] = {}
    for one in audited:
        for finding in one.findings:
            places.setdefault(finding.rule.id, []).append(finding)
    for found in sorted(places.values(), key=lambda some: (-some[0].rule.severity.rank, -len(some))):
        rule = found[0].rule
        domains = list(dict.fromkeys(f"{one.domain}{':' if one.at else ''}{one.at}" for one in found))
        more = f", and {len(domains) - PLACES_SHOWN} more" if len(domains) > PLACES_SHOWN else ""
        yield f"{rule.severity.value:<8}{rule.id:<5}{rule.name}: {count_text(len(found), 'place')}"
        yield from _wrapped(rule.why, width)
        yield from _wrapped(f"{', '.join(domains[:PLACES_SHOWN])}{more}", width)
    yield ""
    yield "One domain or file at a time is shown in full; `--brief` shows VMs by rules, `--json` has everything."


def domains_page(
    found: Sequence[tuple[str, Subject, tuple[Finding, ...]]], unread: Sequence[Unread]
) -> Iterator[str]:
    for origin, subject, findings in found:
        state, running = "not running", subject.running
        if running is not None:
            state = f"{running.state} ({running.reason}){f', pid {running.pid}' if running.pid else ''}"
        yield printable(f"{subject.domain.name}  {state}  ({origin})")
        for disk in subject.domain.disks:
            kind = "" if disk.device == "disk" else f"{disk.device}, "
            source = f"{kind}{disk.source.kind} {disk.source.name}".rstrip()
            yield printable(f"  {disk.target:<6} {source}")
            yield printable(f"         {', '.join(_words(disk, subject))}")
        for finding in findings:
            place = f"{finding.at}: " if finding.at else ""
            yield printable(f"  {finding.rule.severity.value}: {place}{finding.seen.seen} ({finding.rule.id})")
        yield ""
    for lost in unread:
        yield printable(f"not read: {lost.origin}: {lost.because}")
    yield count_text(len(found), "domain") + (f"; {len(unread)} not read" if unread else "")


def _words(disk: DomainDisk, subject: Subject) -> Iterator[str]:
    yield f"bus {disk.bus}"
    if disk.source.kind == "none":
        return
    yield f"format {disk.format or ('unknown' if disk.format_unknown else 'raw')}"
    if disk.opened_here and subject.domain.runs_qemu:
        yield f"cache {cache_of(disk)}" + ("" if disk.cache else " (default)")
        yield f"io {aio_of(disk)}" + ("" if disk.io else " (default)")
        yield f"discard {disk.discard or 'ignore (default)'}"
    threads = subject.domain.threads_of(disk)
    yield f"IOThread {', '.join(map(str, threads))}" if threads else "main loop"
    for name, value in (("queues", disk.queues), ("queue_size", disk.queue_size)):
        if value is not None:
            yield f"{name} {value}"
    for shown in subject.running.disks if subject.running else ():
        if shown.target == disk.target and shown.direct is not None:
            yield f"verified: {'O_DIRECT' if shown.direct else 'page cache'}, aio {shown.aio or 'unknown'}"
