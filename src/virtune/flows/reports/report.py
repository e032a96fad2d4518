# SPDX-License-Identifier: Apache-2.0
"""A study as one HTML file with its charts, as single charts or their specifications, beside published figures."""

import base64
import contextlib
import hashlib
import json
import os
import resource
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from pydantic import TypeAdapter

from virtune.analyse.study.summarise import summarise
from virtune.analyse.study.thresholds import looked_back
from virtune.analyse.trial.usage import operation_times
from virtune.flows.stored.show import by_todays_method
from virtune.model.errors import PreconditionError, UsageError
from virtune.model.evidence import EACH_OPERATION, StudyRecord, TrialRecord
from virtune.model.published import PublishedFigure, PublishedStudy, ServiceLevel
from virtune.model.remark import PERIODIC
from virtune.model.result import Result
from virtune.model.study import StudyKind
from virtune.model.text import did_you_mean, printable, quoted
from virtune.report.charts import charts_of, labelled
from virtune.report.charts.chart import Chart, legend_of, standing_alone, without_legend
from virtune.report.charts.distribution import each_operation
from virtune.report.html.page import ReportPage, check_page, page_of, proof_page, search_page, sweep_page
from virtune.report.pages.study import host_line
from virtune.shell import require_modules
from virtune.store.store import Store

_DRAW = """
const how = {mode: 'vega-lite', ast: true, actions: false, renderer: 'svg', logLevel: 1};
for (const [name, spec] of Object.entries(JSON.parse(document.getElementById('picture-data').text))) {
  const place = document.getElementById(name).querySelector('.drawing');
  const still = place.innerHTML;
  vegaEmbed(place, spec, how).catch(error => {
    place.innerHTML = still;  // the picture as it was printed says the same
    console.error(name, error);
  });
}
"""
"""`ast` lets Vega work without `eval`, which the page's policy forbids."""


@dataclass(frozen=True, slots=True)
class Live:
    """The parts of a page with live pictures: specifications as JSON, the script, and its hash as a policy has it."""

    data: str
    script: str
    policy: str


def live_parts(charts: Sequence[Chart]) -> Live:
    """Return the parts for these pictures; nothing in them can end the element that holds them."""
    import vl_convert

    specs = {chart.name: with_tools(chart.spec) for chart in charts}
    script = vl_convert.javascript_bundle(f"(() => {{{_DRAW}}})();")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Live(data=json.dumps(specs).replace("<", "\\u003c"), script=script, policy=f"'sha256-{digest}'")


def with_tools(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a specification whose marks tell their numbers, and whose curves can be zoomed and moved."""
    config = spec.get("config", {})
    spec = {key: value for key, value in spec.items() if key != "$schema"}  # the script may have a later one
    found = {**spec, "config": {**config, "mark": {**config.get("mark", {}), "tooltip": {"content": "data"}}}}
    layers = list(spec.get("layer", ()))
    for place, layer in enumerate(layers):
        kind = layer["mark"]["type"] if isinstance(layer["mark"], dict) else layer["mark"]
        if kind == "line" and "data" not in layer:
            layers[place] = {**layer, "params": [{"name": "zoom", "select": "interval", "bind": "scales"}]}
            return {**found, "layer": layers}
    return found


_PLACE = Path(__file__).parents[2] / "published"

_Row = TypeVar("_Row")


@cache
def figures() -> tuple[PublishedFigure, ...]:
    """Return every published comparison."""
    return _rows("figures.toml", "figure", PublishedFigure)


def published_study(name: str) -> PublishedStudy | None:
    """Return the published results of a built-in study's authors; None for any other name."""
    found = _rows("studies.toml", "study", PublishedStudy)
    return next((one for one in found if one.name == name), None)


@cache
def service_levels() -> tuple[ServiceLevel, ...]:
    return _rows("service_levels.toml", "level", ServiceLevel)


def conditions_of(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the conditions, with the names of service levels replaced by their conditions.

    Raises UsageError for a single word that is no service level.
    """
    levels = {one.name: one.conditions for one in service_levels()}
    found: list[str] = []
    for word in words:
        name = word.strip().lower()
        if name in levels:
            found += [one for one in levels[name] if one not in found]
        elif name and all(part.isalnum() for part in name.split("-")) and not any(sign in word for sign in "<>=%"):
            hint = (
                did_you_mean(name, levels)
                or f"a condition such as `latency.p99 > 2ms`, or one of {', '.join(levels)}"
            )
            raise UsageError(f"not a condition: {quoted(word)}", hint=hint)
        else:
            found.append(word)
    return tuple(found)


def _rows(file: str, key: str, kind: type[_Row]) -> tuple[_Row, ...]:
    content: dict[str, Any] = tomllib.loads((_PLACE / file).read_text(encoding="utf-8"))
    return TypeAdapter(tuple[kind, ...]).validate_python(content[key])  # type: ignore[valid-type]


_PICTURES_MAX = 4
"""Of a study with many workloads: the first, and those with the most trials in which a period was found."""


def single_operations(store: Store, record: StudyRecord) -> Iterator[Chart]:
    """Yield a picture of every I/O of a trial of each arm, for some of the workloads whose I/Os were logged."""
    study = record.study
    names = [one.name for one in study.compared if one.recorded]
    counts = {name: sum(_periodic(one) for one in record.trials if one.trial.workload == name) for name in names}
    most = sorted((name for name in names[1:] if counts[name]), key=lambda name: -counts[name])
    for name in [*names[:1], *most][:_PICTURES_MAX]:
        series = {arm.name: _series(store, record, arm.name, name) for arm in study.arms}
        made = each_operation(study, name, series)
        if made is not None:
            yield made


def _series(store: Store, record: StudyRecord, arm: str, workload: str) -> tuple[int, ...]:
    """Return the times of the I/Os of one trial: the first in which a period was found, else the first measured."""
    mine = [
        one for one in record.trials
        if (one.trial.arm, one.trial.workload) == (arm, workload) and one.measurement is not None
    ]  # fmt: skip
    chosen = next((one for one in mine if _periodic(one)), mine[0] if mine else None)
    if chosen is None:
        return ()
    captures = store.captures(record.study.id, chosen.trial.number, attempt=chosen.attempt)
    return next((operation_times(one.content) for one in captures if one.name == EACH_OPERATION), ())


def _periodic(one: TrialRecord) -> bool:
    return one.measurement is not None and any(remark.id == PERIODIC.id for remark in one.measurement.remarks)


_TEMPLATE = Path(__file__).parents[2] / "report" / "html" / "page.html"

_ADDRESS_BYTES = 66 * 1024**3
"""vl-convert's V8 reserves 64 GiB of addresses, not memory, and ends the process by a signal where it may not."""

_THREADS = 8
"""vl-convert and its V8 start at most so many threads, and one for each CPU (4 with 2 CPUs were seen).

Where the system refuses one, the process ends by a signal, or never.
"""

_INK, _PAPER = "#1b1b1b", "#ffffff"
"""The colours of a single chart; within a page it takes the page's colours."""


def report_html(store: Store, study: str, *, interactive: bool = False) -> str:
    """Return a study as self-contained HTML, without network or scripts.

    With `interactive` a script in the page makes its pictures live: values under the pointer, zoom.

    Raises PreconditionError without the chart libraries, or where they could not start.
    """
    page = _page(store, by_todays_method(store, store.find(study)))
    return page_html(page, interactive=interactive)


def record_html(store: Store, record: StudyRecord, *, home: str = "") -> str:
    """Return the same of a study that was read, with its figures by today's method; `home` is where a link leads."""
    return page_html(_page(store, record), home=home)


def finding_of(store: Store, record: StudyRecord) -> str:
    """Return what a study that was read found by its figures of today's method: the first line of its page."""
    return " ".join(text.strip() for _, text in _page(store, record).headline)


def _page(store: Store, record: StudyRecord) -> ReportPage:
    if record.study.search is not None:
        from virtune.flows.run.tune import tuning_of

        return search_page(tuning_of(store, record), record)
    result = replace(summarise(record), looked=looked_back(record))
    if record.study.sweep is not None:
        from virtune.flows.run.sweep import sweep_of

        return sweep_page(sweep_of(store, record), result, record)
    if record.study.kind is StudyKind.CHECK:
        from virtune.flows.run.check import fitness

        return check_page(fitness(record), result, record)
    if record.study.accusation is not None:
        from virtune.flows.run.prove import proof_of

        if (proved := proof_of(store, record, result)) is not None:
            return proof_page(proved, result, record)
    drawn = labelled(record.study, single_operations(store, record))
    return page_of(result, record, [*charts_of(result, record), *drawn], published_study(record.study.builtin))


def page_text(result: Result, record: StudyRecord) -> str:
    """Return the page of a result as HTML."""
    published = published_study(record.study.builtin)
    return page_html(page_of(replace(result, looked=looked_back(record)), record, published=published))


def page_html(page: ReportPage, *, home: str = "", interactive: bool = False) -> str:
    """Return a page as HTML; `home` is where a link leads back to; with `interactive` its pictures are live."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    # our own charts of our own specifications: the only text that is not escaped
    # the page has titles and legends as text
    drawn = [replace(chart, spec=without_legend({**chart.spec, "title": ""})) for chart in page.pictures]
    named = zip(page.pictures, map(legend_of, page.pictures), svgs(drawn), strict=True)
    figures = [(chart, legend, Markup(svg)) for chart, legend, svg in named]  # noqa: S704
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, finalize=_shown).from_string(
        _TEMPLATE.read_text(encoding="utf-8")
    )
    live = live_parts(drawn) if interactive and drawn else None
    return template.render(page=page, figures=figures, home=home, live=live)


def _shown(value: object) -> object:
    """Remove control characters of untrusted names from the page."""
    return printable(value, keep="\n") if type(value) is str else value


def charts(store: Store, study: str) -> tuple[Chart, ...]:
    """Return the pictures of a study as values, each with its title and what it is of."""
    record = by_todays_method(store, store.find(study))
    foot = f"study {record.study.id}, {record.study.created[:10]}; {host_line(record.study, record.facts)}"
    return tuple(standing_alone(one, foot) for one in _page(store, record).charts)


def svgs(made: Sequence[Chart]) -> Iterator[str]:
    """Yield each chart as SVG that takes the colour of the text around it."""
    drawing = _drawing()
    for chart in made:
        with _drawn(chart):
            svg = drawing.vegalite_to_svg(
                json.dumps(chart.spec), allowed_base_urls=[]
            )  # a specification fetches nothing
        yield svg


def pngs(made: Sequence[Chart]) -> Iterator[bytes]:
    """Yield each picture as PNG, dark on white."""
    drawing = _drawing()
    for chart in made:
        spec = json.dumps(chart.spec).replace("currentColor", _INK).replace('"transparent"', f'"{_PAPER}"')
        with _drawn(chart):
            png = drawing.vegalite_to_png(spec, scale=2, allowed_base_urls=[])
        yield png


def require_libraries() -> None:
    """Raise ModuleNotFoundError or PreconditionError before a study whose page could not be drawn."""
    require_modules("jinja2", "vl_convert")
    _require_address_space()


def _drawing() -> ModuleType:
    """Return the library that draws. Raises PreconditionError where it could not start."""
    _require_address_space()
    _require_threads()
    import vl_convert

    return vl_convert


@contextlib.contextmanager
def _drawn(chart: Chart) -> Iterator[None]:
    """Turn a failure of the drawing library into a sentence; it panics where it gets no file or thread."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic of its Rust code is no Exception
        hint = "limits of open files or threads (`ulimit -n`, `-u`) can cause it; `virtune show` needs no pictures"
        raise PreconditionError(f"the picture {chart.name} could not be drawn: {error}", hint=hint) from None


def _require_address_space() -> None:
    """Raise PreconditionError where the drawing library would end this process: it raises no error, it aborts."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed != resource.RLIM_INFINITY and allowed < _ADDRESS_BYTES:
        raise PreconditionError(
            f"`ulimit -v` allows {allowed // 1024**2} MiB of address space, and pictures need"
            f" {_ADDRESS_BYTES // 1024**2}, most of it only reserved",
            hint="`ulimit -v unlimited`; `virtune show` needs no pictures",
        )


def _require_threads() -> None:
    """Raise PreconditionError where the drawing library would end this process for want of threads: it tries them."""
    ended = threading.Event()
    tried: list[threading.Thread] = []
    try:
        for _ in range(_THREADS + (os.cpu_count() or 1)):
            thread = threading.Thread(target=ended.wait)
            thread.start()
            tried.append(thread)
    except RuntimeError:
        raise PreconditionError(
            f"only {len(tried)} threads can be started, and pictures need {_THREADS + (os.cpu_count() or 1)}",
            hint="`ulimit -u` or a control group's pids.max is reached; `virtune show` needs no pictures",
        ) from None
    finally:
        ended.set()
        for thread in tried:
            thread.join()
