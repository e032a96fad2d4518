# SPDX-License-Identifier: Apache-2.0
"""Many hosts on a page: their facts and what differs, their audits by rule, and the hosts that gave no answer."""

from collections.abc import Iterator, Mapping, Sequence

from virtune.model.finding import Audited, Unread
from virtune.model.fleet import Difference, FleetHost, HostAudit, Unreached
from virtune.model.text import printable
from virtune.report.fleet_audit import RuleRow, rule_rows
from virtune.report.text.vm.audit import brief
from virtune.report.text.words import count_text

NAMES_SHOWN = 6
"""The most hosts that a line names."""

VALUE_MAX = 60
"""The longest value that is shown whole."""

SHOWN = (
    ("kernel", "kernel.release"),
    ("CPUs", "cpu.online"),
    ("QEMU", "qemu.emulators.qemu-system-x86_64.version"),
    ("fio", "fio.program.version"),
    ("libvirt", "libvirt.daemon.version"),
)
"""The facts of the table of hosts, by their heads."""


def probe_lines(
    facts: Sequence[tuple[FleetHost, Mapping[str, str]]],
    differing: Sequence[Difference],
    lost: Sequence[Unreached],
) -> Iterator[str]:
    """Yield a line for each host, then the facts that differ, then the hosts that gave no answer."""
    if facts:
        rows: list[tuple[str, ...]] = [("host", *(head for head, _ in SHOWN))]
        rows += [(host.name, *(_short(mine.get(key, "-")) for _, key in SHOWN)) for host, mine in facts]
        yield from columns(rows)
    if len(facts) > 1:
        yield ""
        yield f"facts that differ between hosts: {len(differing)}"
        for one in differing:
            values = "; ".join(f"{_short(value)} on {names(on)}" for value, on in one.values)
            yield f"  {printable(one.key)}: {values}"
    yield from lost_lines(lost, len(facts))


def audit_lines(audits: Sequence[HostAudit], lost: Sequence[Unreached]) -> Iterator[str]:
    """Yield the table of VMs by rules, the rules over hosts, and the hosts that gave no answer."""
    audited, unread = together(audits)
    yield from brief(audited, unread)
    rows = rule_rows(audits)
    if rows and len(audits) > 1:
        yield ""
        table: list[tuple[str, ...]] = [("rule", "severity", "hosts", "VMs", "found on", "not on")]
        table += [_rule(row) for row in rows]
        yield from columns(table)
    yield from lost_lines(lost, len(audits))


def together(audits: Sequence[HostAudit]) -> tuple[list[Audited], list[Unread]]:
    """Return the VMs of all hosts, and what could not be read."""
    return [vm for one in audits for vm in one.audited], [lost for one in audits for lost in one.unread]


def lost_lines(lost: Sequence[Unreached], answered: int) -> Iterator[str]:
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


def _rule(row: RuleRow) -> tuple[str, ...]:
    return (
        row.rule.id, row.rule.severity.value, str(len(row.hosts)), str(row.domains), names(row.hosts),
        names(row.without) or "-",
    )  # fmt: skip


def _short(value: str) -> str:
    text = printable(value)
    return text if len(text) <= VALUE_MAX else f"{text[: VALUE_MAX - 3]}..."
