# SPDX-License-Identifier: Apache-2.0
"""Where the time of a request goes, for a terminal: the layers from the top down, and esxtop's names for them."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from virtune.model.layers import Layers, Operation, RequestLayer
from virtune.model.units import format_bandwidth, format_count, format_ns, format_share
from virtune.report.text.layout import Column, Paragraph, Records
from virtune.report.text.words import count_text

_ESXTOP = (
    ("gavg_ns", "GAVG", "the guest's request"),
    ("qavg_ns", "QAVG", "waits"),
    ("kavg_ns", "KAVG", "hypervisor"),
    ("davg_ns", "DAVG", "device"),
)


def operations_table(found: Sequence[Operation]) -> Records:
    """Return the table of a disk's requests by what they ask for, of those that there were."""
    columns = [Column(title="requests")]
    columns += [Column(title=title, right=True) for title in ("a second", "bandwidth", "mean", "in flight")]
    rows = [
        (one.words, format_count(one.iops), format_bandwidth(one.bandwidth) if one.bandwidth else "-",
         format_ns(one.mean_ns), in_flight_text(one.in_flight))
        for one in found if one.mean_ns is not None
    ]  # fmt: skip
    return Records(columns, rows)


def layers_table(found: Layers) -> Iterator[RenderableType]:
    """Yield the table of layers, its total, and why layers are missing."""
    rows: list[tuple[Text | str, ...]] = [
        (one.label, format_ns(one.mean_ns), _interval(one), format_share(one.share), in_flight_text(one.in_flight))
        for one in found.layers
    ]
    flying = sum(one.in_flight for one in found.layers)
    seen = "latency seen by the load" if found.top == "application" else "all that was seen"
    total = (seen, format_ns(found.total_ns), "", "100 %", in_flight_text(flying))
    rows.append(tuple(Text(word, style="bold") for word in total))
    if found.idle is not None and found.idle >= 0.05:
        rows.append(("not handed over by the load", "", "", "", in_flight_text(found.idle)))
    interval = "95 % interval" if found.rounds > 1 else ""
    columns = [Column(title="layer", wraps=True, least=24)]
    columns += [Column(title=title, right=True) for title in ("mean", interval, "share", "in flight")]
    yield Records(columns, rows)
    over = "one round" if found.rounds == 1 else f"means over {count_text(found.rounds, 'round')}"
    yield Paragraph(Text(f"{over}; in flight: rate x time (Little's law)", style="dim"), indent=2, hanging=2)
    if (line := _esxtop(found)) is not None:
        yield Paragraph(Text(line), indent=2, hanging=2)
    for reason in found.reasons:
        yield Paragraph(Text(reason, style="dim"), indent=2, hanging=2)


def in_flight_text(number: float) -> str:
    """Return the mean number of requests in a layer, as text."""
    return f"{number:.2f}" if number < 10 else f"{number:.1f}"


def _interval(one: RequestLayer) -> str:
    if one.low_ns is None or one.high_ns is None:
        return ""
    return f"[{format_ns(one.low_ns)}, {format_ns(one.high_ns)}]"


def _esxtop(found: Layers) -> str | None:
    """Return the figures under esxtop's names."""
    told = [
        f"{name} {format_ns(value)} ({words})"
        for field, name, words in _ESXTOP
        if (value := getattr(found, field)) is not None
    ]
    return f"in esxtop's terms: {', '.join(told)}" if told else None
