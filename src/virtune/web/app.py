# SPDX-License-Identifier: Apache-2.0
"""The routes of the local page, which reads one store."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from virtune.flows.fleet.run import RUNS, kept_runs
from virtune.flows.reports.metrics import Derived, exposition
from virtune.flows.reports.render import study_document
from virtune.flows.reports.report import finding_of, record_html, svgs
from virtune.flows.stored.show import current, derived_anew
from virtune.model.errors import PreconditionError, StorePlace, VirtuneError
from virtune.model.evidence import Damaged, Listed
from virtune.model.text import printable
from virtune.report.json.listing import listing_document
from virtune.report.pages.fleet import runs_rows
from virtune.report.pages.study import arms_text, workloads_text
from virtune.store.progress import run_of, runs_of
from virtune.store.queries import ORDERS
from virtune.store.store import Store
from virtune.web.guard import Guard
from virtune.web.pages import (
    RunShown,
    host_shown,
    pair_of,
    shown_kept,
    shown_running,
    shown_stored,
    stream,
)

PAGE_ROWS = 25
SCRIPTS = ("htmx.min.js", "hx-sse.min.js")
_STATIC = Path(__file__).parent / "static"
_REPORTS_KEPT = 16
_FINDINGS_KEPT, _FINDINGS_SECONDS = 5_000, 1.5
"""How many findings are kept, and how long a list waits for those that are not known yet."""
_PAGES_MAX = 1_000_000
_NAME_MAX = 200
"""Characters of a filter that are used; the rest is cut off."""


class LocalPage:
    """The pages over one store. Reports are drawn once and kept while their study has not changed."""

    def __init__(self, store: StorePlace, ending: Callable[[], bool]) -> None:
        self.path, self._ending = store, ending
        self._reports: OrderedDict[tuple[str, int, bool], str] = OrderedDict()
        self._findings: OrderedDict[tuple[str, int, int], str] = OrderedDict()
        self._drawing = threading.Lock()
        self._derived = Derived()
        self._templates = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, finalize=lambda value: printable(value, most=400) if type(value) is str else value,
        )  # fmt: skip

    def studies(self, request: Request) -> Response:
        query, found = self._found(request)
        running = {one.study: one.title for place in (self.path, RUNS.place) for one in runs_of(place)}
        with self._store() as store:
            findings = self._findings_of(store, found.rows)
        rows = [_row(one, running) | {"finding": told} for one, told in zip(found.rows, findings, strict=True)]
        page = {"rows": rows, "total": found.total, "query": query, "pages": -(-found.total // PAGE_ROWS)}
        return self._html("studies.html", **page, kinds=found.kinds, orders=ORDERS, running=running)

    def _findings_of(self, store: Store, rows: Sequence[Listed | Damaged]) -> Iterator[str]:
        """Return what each study found, of finished ones, as far as that is known in time: the next look has more."""
        until = time.monotonic() + _FINDINGS_SECONDS
        for one in rows:
            if isinstance(one, Damaged) or not one.finished:
                yield ""
                continue
            key = (one.name, one.done, one.failed)
            if key not in self._findings and time.monotonic() < until:
                try:
                    self._findings[key] = finding_of(store, derived_anew(store, store.get(store.find(one.name))))
                except VirtuneError as error:
                    self._findings[key] = error.message
                while len(self._findings) > _FINDINGS_KEPT:
                    self._findings.popitem(last=False)
            yield self._findings.get(key, "")

    def studies_json(self, request: Request) -> Response:
        """Return the same studies as `virtune show list --json` does."""
        _, found = self._found(request)
        return JSONResponse(listing_document(found.rows))

    def study(self, request: Request) -> Response:
        """Show a study's report, the one that `virtune show report` writes."""
        with self._store() as store:
            name = store.find(request.path_params["study"])
            record = store.get(name)
            key = (f"{store.host}/{name}", len(record.attempts), record.finished)
            with self._drawing:
                if key not in self._reports:
                    self._reports[key] = record_html(store, derived_anew(store, record), home="/")
                    while len(self._reports) > _REPORTS_KEPT:
                        self._reports.popitem(last=False)
                return HTMLResponse(self._reports[key])

    def study_json(self, request: Request) -> Response:
        """Return a study as `virtune show --json` does."""
        with self._store() as store:
            return JSONResponse(study_document(store, store.find(request.path_params["study"])))

    def pair(self, request: Request) -> Response:
        with self._store() as store:
            # one after the other, since what is found says whose studies ids mean
            sides = [current(store, store.find(request.query_params.get(side, "")))[1] for side in ("a", "b")]
        return self._html("pair.html", pair=pair_of(*sides))

    def host(self, _: Request) -> Response:
        with self._store() as store:
            rows, chart = host_shown(store)
        drawings, undrawn = list[Markup](), ""
        try:
            with self._drawing:
                drawings = [Markup(svg) for svg in svgs([chart] if chart else [])]  # noqa: S704 - ours
        except PreconditionError as error:  # the table says the same
            undrawn = error.message
        return self._html("host.html", rows=rows, chart=chart, drawings=drawings, undrawn=undrawn)

    def live(self, request: Request) -> Response:
        return self._html("live.html", run=self._run(request.path_params["study"]))

    def events(self, request: Request) -> Response:
        """Send what changes on that page as server-sent events, until the run is over."""
        name, template = request.path_params["study"], self._templates.get_template("live_state.html")
        self._run(name)

        def show() -> tuple[str, bool]:
            try:
                run = self._run(name)
            except (HTTPException, VirtuneError):  # it was there a moment ago
                hint = "nothing of it that can be read is kept here now"
                run = RunShown(study=name, title="", state="gone", hint=hint, over=True, report=False)
            return template.render(run=run), run.over

        return StreamingResponse(stream(show, ending=self._ending), media_type="text/event-stream")

    def fleets(self, _: Request) -> Response:
        found, damaged = kept_runs()
        heads, *rows = runs_rows(found[::-1])
        return self._html("fleets.html", heads=heads, rows=rows, damaged=damaged)

    def script(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in SCRIPTS:
            raise HTTPException(404, "there is no such script")
        return Response((_STATIC / name).read_bytes(), media_type="text/javascript; charset=utf-8")

    def _run(self, study: str) -> RunShown:
        if (run := run_of(self.path, study) or run_of(RUNS.place, study)) is not None:
            return shown_running(run, now=time.time())
        if study in RUNS.names():
            return shown_kept(RUNS.find(study))
        with self._store() as store:
            found = shown_stored(store, study)
        if found is None:
            raise HTTPException(404, "no such study is stored or runs")
        return found

    def metrics(self, request: Request) -> Response:
        """Return the store's figures in Prometheus' or OpenMetrics' text."""
        with self._store() as store:
            text, kind = exposition(store, request.headers.get("accept", ""), self._derived)
        return Response(text, headers={"content-type": kind})

    def _store(self) -> Store:
        store = Store(self.path, reading=True)
        store.writable = False  # measurements by a newer method are shown, but not stored
        return store

    def _found(self, request: Request) -> tuple[dict[str, Any], Any]:
        asked = request.query_params
        words, kind = asked.get("q", "")[:_NAME_MAX], asked.get("kind", "")[:_NAME_MAX]
        order = asked.get("sort", "newest")
        if order not in ORDERS:
            raise HTTPException(400, f"sort is one of {', '.join(ORDERS)}")
        try:
            number = max(1, int(asked.get("page", "1")))
        except ValueError:
            raise HTTPException(400, "page is a number") from None
        with self._store() as store:
            found = store.page(
                words=words, kind=kind, limit=PAGE_ROWS, offset=(min(number, _PAGES_MAX) - 1) * PAGE_ROWS, order=order
            )
        return {"q": words, "kind": kind, "sort": order, "page": number}, found

    def _html(self, template: str, **values: Any) -> Response:
        return HTMLResponse(self._templates.get_template(template).render(**values))


def _row(one: Listed | Damaged, running: Mapping[str, str]) -> dict[str, Any]:
    if isinstance(one, Damaged):
        return {"id": one.id, "damaged": one.why}
    study = one.study
    return {
        "id": one.name, "title": study.words, "host": one.host, "damaged": "",
        "created": study.created[:16].replace("T", " "), "kind": study.label,
        "arms": arms_text(study), "workloads": workloads_text(study),
        "trials": f"{one.done}/{study.most_trials(finished=one.finished) or one.done}", "finished": one.finished,
        # how another host's run goes on is not told beside this store
        "running": not one.host and study.id in running, "here": not one.host,
    }  # fmt: skip


def application(store: StorePlace, *, token: str, ending: Callable[[], bool] = lambda: False) -> Starlette:
    """Return the page over a store, for whoever has the token; `ending` says that the server stops."""
    page = LocalPage(store, ending)
    routes: dict[str, Callable[[Request], Response]] = {
        "/": page.studies,
        "/study/{study:path}": page.study,
        "/pair": page.pair,
        "/live/{study}": page.live,
        "/live/{study}/events": page.events,
        "/static/{name}": page.script,
        "/host": page.host,
        "/fleets": page.fleets,
        "/metrics": page.metrics,
        "/api/studies.json": page.studies_json,
        "/api/study/{study:path}.json": page.study_json,
    }
    return Starlette(
        routes=[Route(path, endpoint, methods=["GET"]) for path, endpoint in routes.items()],
        middleware=[Middleware(Guard, token=token)],
        exception_handlers={VirtuneError: _said},
    )


def _said(_: Request, error: Exception) -> Response:
    """Answer with virtune's own sentence where a study is not there or cannot be read."""
    assert isinstance(error, VirtuneError)  # noqa: S101 - it is called for nothing else
    return Response(f"{printable(error.message)}\n", 404, media_type="text/plain; charset=utf-8")
