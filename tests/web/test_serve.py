# SPDX-License-Identifier: Apache-2.0
"""The local page, asked over a real socket: every route, who is refused, hostile names, and Prometheus' text."""

import gzip
import html
import json
import re
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.routing import Route
from tests.published import complaints
from tests.web.pages import HOSTILE, TOKEN, Page, served
from tests.web.paused_run import simulated

from virtune.cli import run
from virtune.cli.serve import listening_on, token_of
from virtune.flows.reports.metrics import DESCRIPTIONS, Derived, exposition
from virtune.model.errors import PreconditionError
from virtune.model.evidence import Listed
from virtune.model.reason import Reason
from virtune.model.result import Result
from virtune.model.verdict import Verdict
from virtune.store.store import Store
from virtune.web.app import application
from virtune.web.guard import refusal

pytestmark = pytest.mark.xdist_group("served")  # what is made for the module is made once

KEPT = Path(__file__).parents[1] / "store" / "data" / "older-method.sqlite.gz"
COMPARE, SEARCH = "20261122-184255-3883", "20261122-184358-4b1a"
DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    store = tmp_path_factory.mktemp("serve") / "before.sqlite"
    store.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with served(store) as found:
        yield found


def test_every_page_answers_runs_no_script_and_fetches_nothing(page: Page) -> None:
    before = page.store.read_bytes()
    for path in (
        "/",
        f"/study/{COMPARE}",
        f"/study/{SEARCH}",
        f"/pair?a={COMPARE}&b={COMPARE}",
        f"/pair?a={COMPARE}&b={SEARCH}",
        "/host",
    ):
        status, text, headers = page.get(path)
        assert status == 200, (path, text)
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "<script" not in text
        for link in re.findall(r'(?:href|src|action)="([^"]*)"', text):
            assert link.startswith(("/", "#")), (path, link)
            assert not link.startswith("//")
    assert page.store.read_bytes() == before


def test_the_list_has_filters_and_its_json_is_that_of_the_command_line(page: Page) -> None:
    _, every, _ = page.get("/")
    assert COMPARE in every
    assert SEARCH in every
    _, some, _ = page.get("/?kind=tune")
    assert COMPARE not in some
    assert SEARCH in some
    _, upper, _ = page.get("/?q=RANDREAD")
    assert COMPARE in upper
    _, literal, _ = page.get("/?q=%25")
    assert "No study fits" in literal, "a percent sign is no wildcard"
    _, none, _ = page.get("/?q=nothing-has-this")
    assert "No study fits" in none
    status, text, _ = page.get("/api/studies.json?kind=compare")
    assert (status, {one["kind"] for one in json.loads(text)["studies"]}) == (200, {"compare"})
    status, text, _ = page.get(f"/api/study/{COMPARE}.json")
    assert json.loads(text)["study"]["id"] == COMPARE
    status, text, _ = page.get(f"/api/study/{SEARCH}.json")
    assert status == 200
    assert complaints("tune", json.loads(text)) == [], "a search has a document of its own"
    assert page.get("/study/none-of-them")[0] == 404
    assert page.get("/?page=x")[0] == 400
    assert page.get("/?page=99999999999999999999")[0] == 200


def test_the_list_says_what_each_study_found_and_is_ordered_as_asked(page: Page) -> None:
    _, text, _ = page.get("/")
    rows = {COMPARE: "slow against free: undecided", SEARCH: "ahead so far: against the baseline"}
    for study, finding in rows.items():
        (row,) = (one for one in text.split("<tr>") if f'href="/study/{study}"' in one)
        assert finding in html.unescape(row)
        assert "<td>this</td>" in row
    every = re.findall(r'href="/study/([^"]+)"', text)
    for order in ("newest", "oldest", "kind", "host"):
        status, ordered, _ = page.get(f"/?sort={order}")
        found = re.findall(r'href="/study/([^"]+)"', ordered)
        assert (status, sorted(found)) == (200, sorted(every)), order
        assert found == {"newest": every, "oldest": every[::-1], "host": every}.get(order, found)
        assert f"<option selected>{order}</option>" in ordered
    for other in ("", "study", "found; drop table studies", "%00", "newest,oldest"):
        assert page.get(f"/?sort={quote(other)}")[0] == 400, other


def test_of_many_studies_a_list_says_at_once_what_it_has_time_for(tmp_path: Path) -> None:
    store = tmp_path / "many.sqlite"
    with Store(store) as one:
        assert one.list() == ()
    with served(store) as empty:
        assert "No study fits" in empty.get("/")[1]
    study = replace(simulated(tmp_path), title=HOSTILE)
    with Store(store) as one:
        for number in range(60):
            one.add_study(replace(study, id=f"20260101-0000{number:02}-abcd"), facts="")
    with served(store) as page:
        status, text, _ = page.get("/?page=3")
        assert (status, text.count("unfinished")) == (200, 10)
        assert "<script" not in text
        assert "{{7*7}}" in text
        assert "\x1b" not in text


def test_strangers_are_refused(page: Page) -> None:
    own = f"127.0.0.1:{page.port}"
    assert page.get("/", Host=f"evil.example:{page.port}")[0] == 421
    assert page.get("/", Host=f"127.0.0.1.evil.example:{page.port}")[0] == 421
    assert page.get("/", Origin="https://evil.example")[0] == 403
    assert page.get("/", Origin=f"http://{own}")[0] == 200
    assert page.get("/", Sec_Fetch_Site="cross-site")[0] == 403
    assert page.get("/", Sec_Fetch_Site="same-site")[0] == 403
    assert page.get("/", Sec_Fetch_Site="same-origin")[0] == 200
    assert page.get("/", "POST")[0] == 405
    assert page.get(f"/study/{COMPARE}", "DELETE")[0] == 405
    for host in (
        "user@127.0.0.1",
        "evil.example@127.0.0.1",
        "127.0.0.1:80:80",
        "127.0.0.1/",
        "127.0.0.1:x",
        "a b",
        "",
    ):
        assert page.get("/", Host=host)[0] == 421, host
    assert refusal("GET", {"host": "[::1]:80"}, ("::1",)) == (0, "")
    assert refusal("GET", {"host": "[::1"}, ("::1",))[0] == 421
    assert refusal("GET", {}, ("localhost",))[0] == 421


def every_route() -> list[str]:
    """Return an address of each route that the application has."""
    routes = application(Path("/nowhere"), token=TOKEN).routes
    names = {"{study:path}": COMPARE, "{study}": COMPARE, "{name}": "htmx.min.js"}
    found = [
        re.sub(r"{.*?}", lambda part: names[part[0]], route.path) for route in routes if isinstance(route, Route)
    ]
    assert len(found) == len(routes) > 9
    return found


@pytest.mark.parametrize("path", every_route())
def test_without_the_token_no_route_answers(page: Page, path: str) -> None:
    stranger = Page(page.port, page.store, token="")
    wrong: list[dict[str, str]] = [
        {}, *({"Authorization": f"{word}"} for word in ("Bearer", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN)),
        {"Cookie": f"virtune-{page.port}="}, {"Cookie": f"virtune-1={TOKEN}"}, {"Cookie": "\xe4=;=;;virtune"},
    ]  # fmt: skip
    for headers in wrong:
        for place in (path, f"{path}?token=", f"{path}?token={TOKEN}x", f"{path}?Token={TOKEN}"):
            status, text, answered = stranger.get(place, **headers)
            assert status == 403, (place, headers)
            assert text == "this page needs the token in the address that `virtune serve` printed\n"
            assert "set-cookie" not in answered
    assert stranger.get(f"{path}?token={TOKEN}")[0] != 403
    assert stranger.get(path, Authorization=f"bearer {TOKEN}")[0] != 403
    status, _, answered = stranger.get(f"{path}?a=1&token={TOKEN}&b=%26", Accept="text/html,*/*")
    assert (status, answered["location"]) == (303, f"{path}?a=1&b=%26"), "no address with the token is kept"
    cookie, *kept = answered["set-cookie"].split("; ")
    assert kept == ["Path=/", "HttpOnly", "SameSite=Strict"]
    assert stranger.get(path, Cookie=f"other=1; {cookie}")[0] != 403


def test_another_user_of_the_machine_reads_nothing_but_with_the_token(page: Page) -> None:
    def as_nobody(path: str) -> str:
        asked = f"GET {path} HTTP/1.1\\r\\nHost: 127.0.0.1:{page.port}\\r\\nConnection: close\\r\\n\\r\\n"
        ask = f"exec 3<>/dev/tcp/127.0.0.1/{page.port}; printf '{asked}' >&3; cat <&3"
        return subprocess.run(["bash", "-c", ask], user=65534, group=65534, extra_groups=[], text=True, check=True,
                              capture_output=True, timeout=60).stdout  # fmt: skip

    for path in ("/", "/metrics", f"/api/study/{COMPARE}.json"):
        assert as_nobody(path).startswith("HTTP/1.1 403 "), path
        assert as_nobody(f"{path}?token={TOKEN}").startswith("HTTP/1.1 200 "), path


def test_a_token_of_a_file_is_made_once_and_is_nobody_else_s(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = token_of(path)
    assert len(token) >= 40
    assert path.stat().st_mode & 0o777 == 0o600
    assert token_of(path) == token
    path.chmod(0o640)
    with pytest.raises(PreconditionError, match="others may read the token"):
        token_of(path)
    path.chmod(0o600)
    for text in ("", "short", "x" * 30 + "; Domain=evil", "x" * 300):
        path.write_text(text)
        with pytest.raises(PreconditionError, match="holds no token"):
            token_of(path)


def test_prometheus_reads_the_metrics_and_the_dashboard_names_no_other(page: Page) -> None:
    status, text, headers = page.get("/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    families = {one.name: one for one in text_string_to_metric_families(text)}
    assert set(families) == set(DESCRIPTIONS)
    document = json.loads(page.get(f"/api/study/{COMPARE}.json")[1])
    verdict = document["comparisons"][0]
    mid = [one.value for one in families["virtune_study_difference_ratio"].samples if one.labels["bound"] == "mid"
           and one.labels["study"] == COMPARE and one.labels["arm"] == verdict["candidate"]]  # fmt: skip
    assert mid == [pytest.approx(verdict["ratio"]["estimate"])]
    said = [one.labels["verdict"] for one in families["virtune_study_verdict"].samples if one.value == 1]
    assert verdict["verdict"] in said
    opened = page.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert opened[1].endswith("# EOF\n")
    named = set(re.findall(r"\bvirtune_\w+", DASHBOARD.read_text()))
    assert named
    assert named <= set(DESCRIPTIONS), named - set(DESCRIPTIONS)


class Doubted(Derived):
    """Every verdict of a store's comparisons is better, with the doubt that levels of an arm may last."""

    def of(self, store: Store, one: Listed, derive: Callable[[Store, str], Any]) -> Any:
        found = super().of(store, one, derive)
        if not isinstance(found, Result):
            return found
        doubted = (replace(one, verdict=Verdict.BETTER, reason=Reason.UNLESS_LASTING) for one in found.verdicts)
        return replace(found, verdicts=tuple(doubted))


def test_prometheus_gets_verdicts_and_values_as_pages_have_them(page: Page) -> None:
    with Store(page.store) as store:
        text = exposition(store, derived=Doubted())[0].decode()
    families = {one.name: one.samples for one in text_string_to_metric_families(text)}
    assert {one.labels["verdict"] for one in families["virtune_study_verdict"] if one.value} == {"perhaps better"}
    document = json.loads(page.get(f"/api/study/{COMPARE}.json")[1])
    exported = {
        (one.labels["arm"], one.labels["workload"], one.labels["metric"]): one.value
        for one in families["virtune_study_value"] if one.labels["study"] == COMPARE
    }  # fmt: skip
    apart = 0
    for arm in document["arms"]:
        for workload in arm["workloads"]:
            for metric, value in workload["values"].items():
                shown = value["value"] if value.get("typical") is None else value["typical"]
                apart += shown != value["value"]
                assert exported[arm["name"], workload["workload"], metric] == pytest.approx(shown)
    assert apart, "a typical round is another mean"


def test_a_host_s_checks_are_drawn_over_time(tmp_path: Path) -> None:
    store = tmp_path / "checks.sqlite"
    words = ("--rig", "simulated", "--seconds", "12s", "-q", "--store", str(store))
    assert run(["host", "check", "--seed", "1", *words]) == 0
    with served(store) as page:
        assert "<svg" not in page.get("/host")[1], "one check is no history"
        assert run(["host", "check", "--seed", "2", *words]) == 0
        status, text, headers = page.get("/host")
        assert status == 200
        assert text.count("<svg") == 1
        assert "of 2 checks this host was fit to measure" in text
        assert text.count("<td>randread-4k on simulated</td>") == 2
        assert "SIMULATED" in text
        assert "script-src" not in headers["content-security-policy"]


def test_an_unfinished_study_of_another_host_is_told_without_a_page_of_its_run(tmp_path: Path) -> None:
    store = tmp_path / "gathered.sqlite"
    study = replace(simulated(tmp_path), id="20260101-000000-abcd", created="2026-01-01T00:00:00+00:00")
    for host in ("", "web1"):
        with Store(store, host=host) as one:
            one.add_study(study, facts="")
    with served(store) as page:
        _, text, _ = page.get("/")
        assert f"web1/{study.id}" in text
        assert text.count("unfinished") == 2
        links = re.findall(r'href="(/live/[^"]*)"', text)
        assert links == [f"/live/{study.id}"]
        assert page.get(links[0])[0] == 200


def test_hostile_names_do_no_harm(page: Page, tmp_path: Path) -> None:
    changed = tmp_path / "hostile.sqlite"
    changed.write_bytes(page.store.read_bytes())
    with sqlite3.connect(changed) as db:
        quoted = json.dumps(HOSTILE + "x" * 10_000)[1:-1]
        for name, text in db.execute("select id, study from studies").fetchall():
            db.execute("update studies set study = ? where id = ?", (text.replace('"slow"', f'"{quoted}"'), name))
        db.execute("update trials set arm = ? where arm = 'slow'", (HOSTILE + "x" * 10_000,))
    with served(changed) as hostile:
        for path in ("/", f"/study/{COMPARE}", f"/pair?a={COMPARE}&b={COMPARE}", "/metrics"):
            status, text, _ = hostile.get(path)
            assert status == 200, (path, text[:500])
            assert "alert(1)" in text, path
            assert "\x1b" not in text, path
            assert "<script" not in text or path == "/metrics", path
            assert "{{7*7}}" in text, "a name is no template"
        assert list(text_string_to_metric_families(text))


def test_the_address_that_is_told_takes_connections_at_once() -> None:
    with listening_on(0) as listening, socket.create_connection(listening.getsockname(), timeout=60) as asking:
        assert asking.getpeername() == listening.getsockname()
        with pytest.raises(PreconditionError, match="cannot listen on"):
            listening_on(listening.getsockname()[1])
