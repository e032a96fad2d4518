# SPDX-License-Identifier: Apache-2.0
"""The HTML report: nothing from elsewhere, nobody's markup, the numbers of the other outputs, tables for pictures."""

import base64
import gzip
import hashlib
import html
import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.report.layer_parts import LAYERS
from tests.report.records import study

from virtune.cli import run
from virtune.flows.reports.report import charts, live_parts, page_html, report_html, svgs
from virtune.flows.stored.show import current
from virtune.model.evidence import Listed
from virtune.model.result import LoadEstimate, LoadPoint, LoadSweep, Value
from virtune.model.verdict import Interval
from virtune.report.charts.chart import legend_of
from virtune.report.charts.loads import sweep_curve
from virtune.report.charts.stacked import times_of
from virtune.report.charts.tradeoff import speed_against_cost
from virtune.report.html.page import ForestRow, ReportPage, forest_of
from virtune.report.pages.tune import recommendation_line
from virtune.report.render.terminal import Table
from virtune.report.words import change_words
from virtune.store.store import Store

pytestmark = pytest.mark.xdist_group("page")  # what is made for the module is made once

KEPT = Path(__file__).parents[1] / "store" / "data" / "older-method.sqlite.gz"
COMPARE = "20261122-184255-3883"
SEARCH = "20261122-184358-4b1a"
CHECK = "20261122-184338-7540"
HOSTILE = '<script>alert(1)</script>"\x1b[31m' + "x" * 10_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    place = tmp_path_factory.mktemp("html") / "before.sqlite"
    place.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with Store(place) as found:
        return found


@pytest.fixture(scope="module")
def page(store: Store) -> str:
    return report_html(store, COMPARE)


class Tags(HTMLParser):
    """Collects the tags and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_it_fetches_nothing_and_runs_nothing(page: str) -> None:
    tags = Tags()
    tags.feed(page)
    names = {tag for tag, _ in tags.found}
    assert names & {"script", "link", "iframe", "object", "img", "base", "form"} == set()
    for _, attributes in tags.found:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("href", "src", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert "default-src 'none'" in page
    assert len(page) < 1_500_000


def test_live_pictures_need_one_script_that_the_page_s_own_policy_names(store: Store, tmp_path: Path) -> None:
    place = tmp_path / "before.sqlite"
    place.write_bytes(gzip.decompress(KEPT.read_bytes()))
    target = tmp_path / "live.html"
    words = ["show", "report", COMPARE, "--interactive", "--store", str(place)]
    assert run([*words, "-o", str(target)]) == 0
    assert run([*words, "--spec"]) == 2
    text = target.read_text()
    data, script = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)
    assert text.count("<script") == 2
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}'; style-src" in text
    made = charts(store, COMPARE)
    specs = json.loads(data)
    made = tuple(one for one in made if not one.name.startswith("forest"))  # which the page draws itself
    assert list(specs) == [chart.name for chart in made]
    assert all(spec["data"] == json.loads(json.dumps(chart.spec["data"]))
               for chart, spec in zip(made, specs.values(), strict=True))  # fmt: skip
    assert "zoom" in data
    body = text.partition('<script type="application/json"')[0]
    assert body.count("<svg") == len(made), "without the script each picture is there as it is printed"
    assert text.count('id="picture-data"') == 1
    ids = re.findall(r'<[^>]* id="([^"]+)"', body)
    assert len(ids) == len(set(ids)), "the script finds its figures by their ids"
    assert len(text) < 1_500_000


def test_a_hostile_name_cannot_end_the_element_of_live_pictures(store: Store) -> None:
    (chart, *_) = charts(store, COMPARE)
    named = replace(chart, spec={**chart.spec, "data": {"values": [{"pair": "</script><script>alert(1)</script>"}]}})
    live = live_parts([named])
    assert "<" not in live.data
    assert json.loads(live.data)[chart.name]["data"]["values"][0]["pair"].startswith("</script>")
    assert "</script" not in live.script


def test_every_picture_has_a_name_words_and_its_numbers(page: str, store: Store) -> None:
    made = charts(store, COMPARE)
    assert [chart.name.partition("-")[0] for chart in made] == [
        "forest",
        "percentiles",
        "rounds",
        "narrowing",
        "heat",
    ]
    made = made[1:]  # the page draws its forest plot itself, as a table
    assert page.count("<svg") == len(made) == page.count("The numbers of this picture")
    for chart in made:
        assert chart.rows
        assert all(len(row) == len(chart.columns) for row in chart.rows)
        assert f'id="{chart.name}"' in page


def test_its_numbers_are_those_of_the_result(page: str, store: Store) -> None:
    _, result = current(store, COMPARE)
    verdict = result.verdicts[0]
    assert verdict.ratio is not None
    row = next(chart for chart in charts(store, COMPARE) if chart.name.startswith("forest")).rows[0]
    bounds = (verdict.ratio.estimate, verdict.ratio.low, verdict.ratio.high)
    assert row == ("slow against free", "undecided", *map(change_words, bounds), "8")
    text = re.sub(r"<[^>]+>", " ", page)
    assert "undecided" in text
    assert COMPARE in text


def test_an_interval_beyond_the_axis_ends_in_an_arrow_and_the_margin_is_drawn(store: Store) -> None:
    spec = charts(store, COMPARE)[0].spec
    row = spec["data"]["values"][0]
    assert (row["beyond_low"], row["beyond_high"]) == (True, True)
    band = spec["layer"][0]["data"]["values"][0]
    assert band["to"] == pytest.approx(0.0296, abs=1e-3)
    assert band["from"] == -band["to"]


def test_somebody_else_s_markup_is_shown_as_text(store: Store) -> None:
    record, result = current(store, COMPARE)
    arms = tuple(replace(arm, name=HOSTILE) if arm.name == "slow" else arm for arm in result.study.arms)
    study = replace(result.study, arms=arms)
    summaries = tuple(replace(one, arm=HOSTILE) if one.arm == "slow" else one for one in result.arms)
    changed = replace(result, study=study, arms=summaries)
    from virtune.flows.reports.report import page_text

    text = page_text(changed, record)
    assert "<script" not in text
    assert "\x1b" not in text


def test_the_pictures_take_an_svg_a_png_or_their_specification(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "before.sqlite"
    place.write_bytes(gzip.decompress(KEPT.read_bytes()))
    words = ["show", "report", COMPARE, "--store", str(place)]
    assert run([*words, "--spec"]) == 0
    specs = json.loads(capsys.readouterr().out)
    assert specs == {chart.name: json.loads(json.dumps(chart.spec)) for chart in charts(store, COMPARE)}
    assert all(COMPARE in " ".join(spec["title"]["subtitle"]) for spec in specs.values())
    assert run([*words, "--png", str(tmp_path / "png")]) == 0
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "png").iterdir())
    assert run([*words, "-o", str(place)]) == 2  # the store is no report, and stays
    assert "is not a report" in capsys.readouterr().err
    assert place.read_bytes().startswith(b"SQLite")


def test_a_search_has_its_race_and_every_configuration(store: Store) -> None:
    from virtune.flows.run.tune import finished_tuning

    page, known = report_html(store, SEARCH), finished_tuning(store, SEARCH)
    assert known.winner is not None
    assert page.count(known.winner) > 2
    text = re.sub(r"<[^>]+>", " ", page)
    for runner in known.standing.runners:
        assert runner.arm in text
    names = [chart.name.partition("-")[0] for chart in charts(store, SEARCH)]
    assert names[0] == "race"
    for chart in charts(store, SEARCH):
        assert len(chart.rows) == len(known.standing.runners) + len(known.broken)


def test_an_audit_of_many_vms_is_a_table_of_vms_by_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, domains = tmp_path / "audit.html", Path(__file__).parents[1] / "captures" / "domains"
    assert run(["audit", str(domains), "--html", str(page), "--json", "--fail-on", "never"]) in (0, 2)
    found = json.loads(capsys.readouterr().out)
    text = html.unescape(re.sub(r"<[^>]+>", " ", page.read_text()))
    severities = [one["severity"] for vm in found["domains"] for one in vm["findings"]]
    assert f"{severities.count('error')} errors" in text
    assert f"{severities.count('try')} things worth measuring" in text
    assert page.read_text().count("<svg") == 1
    for vm in found["domains"]:
        for one in vm["findings"]:
            assert one["rule"] in text


def test_a_sweep_draws_its_curve_with_the_knee() -> None:
    points = tuple(
        LoadPoint(
            workload="w", offered=1000.0 * n, achieved=(990.0 * n,), met=n < 5, latency_ns=1e5 * n * n, power=()
        )
        for n in range(1, 6)
    )
    knee = LoadEstimate(iops=3000.0, low=2500.0, high=None)
    known = LoadSweep(study=study(1), finished=True, points=points, saturation=None, knee=knee, most=None, why=())
    chart = sweep_curve(known)
    assert chart is not None
    assert "the knee is at 3,000 IOPS" in chart.title
    assert [row[3] for row in chart.rows] == ["yes"] * 4 + ["no"]
    assert "<svg" in next(svgs([chart]))


def test_a_page_replaces_a_page_and_nothing_else(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "before.sqlite"
    place.write_bytes(gzip.decompress(KEPT.read_bytes()))
    words = ["show", "report", COMPARE, "--store", str(place)]
    page, photo, link = tmp_path / "a.html", tmp_path / "photo.png", tmp_path / "link.html"
    photo.write_bytes(b"\x89PNG precious")
    link.symlink_to(tmp_path / "elsewhere")
    for target, status in ((page, 0), (page, 0), (photo, 2), (link, 2), (tmp_path, 2)):
        assert run([*words, "-o", str(target)]) == status, capsys.readouterr().err
    assert photo.read_bytes() == b"\x89PNG precious"
    for name in ("a.md", "a.JSON", "a.png", "a.svg"):
        assert run([*words, "-o", str(tmp_path / name)]) == 2
        assert not (tmp_path / name).exists()
        assert "the report is HTML" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()
    assert run([*words, "--svg", str(tmp_path / "svg")]) == 0
    assert run([*words, "--svg", str(tmp_path / "svg")]) == 2  # pictures carry no mark: they are not replaced
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert run(["show", "report", "last", "--store", str(empty)]) == 1
    assert empty.read_bytes() == b""


@pytest.fixture(scope="module")
def invented(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store of a simulated search and a simulated sweep, of which the greatest load is not carried."""
    place = tmp_path_factory.mktemp("invented") / "store.sqlite"
    shared = ("--rig", "simulated", "--seed", "1", "-q", "--store", str(place))
    assert run(["tune", "--confirm", "2", *shared]) == 0
    assert run(["sweep", "--loads", "9000iops,60000iops", "--seconds", "1", "--rounds", "2", *shared]) == 0
    with Store(place) as found:
        return found


def studies(store: Store) -> dict[str, str]:
    return {one.study.kind: one.study.id for one in store.list() if isinstance(one, Listed)}


def test_every_picture_of_a_simulated_study_says_so_also_where_it_stands_alone(invented: Store) -> None:
    for kind in ("tune", "sweep"):
        made = charts(invented, studies(invented)[kind])
        assert made
        for chart in made:
            assert chart.title.startswith("SIMULATED"), (kind, chart.name)
            assert chart.spec["title"]["text"][0].startswith("SIMULATED"), (kind, chart.name)


def test_a_search_s_page_begins_with_what_to_do_and_its_table_with_the_leader(invented: Store) -> None:
    from virtune.flows.run.tune import finished_tuning

    name = studies(invented)["tune"]
    page, known = report_html(invented, name), finished_tuning(invented, name)
    text = html.unescape(re.sub(r"<[^>]+>", " ", page))
    assert known.winner is not None
    assert recommendation_line(known) in re.findall(r'<li class="(?:better|same|undecided)">.*', page)[0]
    table = text[text.index("state (block)") :]
    places = [table.index(one.arm) for one in known.standing.runners]
    assert min(places) == table.index(known.winner)
    assert "leads" in table
    assert table.count(" % [") == len(known.standing.runners) - 1, "each other one has its interval"


def test_a_sweep_s_page_has_its_curve_in_one_table_and_says_a_warning_once(invented: Store) -> None:
    text = html.unescape(re.sub(r"<[^>]+>", " ", report_html(invented, studies(invented)["sweep"])))
    assert text.count("these figures come from a formula and a seed") == 1
    assert "were offered" not in text, "more is offered than is carried on purpose"
    table = text[text.index("loads; < less") :]
    assert table.index("offered") < table.index("achieved") < table.index("9,000") < table.index("60k")
    assert " <" in table[table.index("60k") :][:60]


def test_a_forest_has_room_for_its_words_in_a_wider_font(store: Store) -> None:
    spec = charts(store, COMPARE)[0].spec
    longest = max(len(row["text"]) for row in spec["data"]["values"])
    assert spec["padding"]["right"] >= 24 + longest, "a point for each character"


def test_a_heat_map_s_legend_names_no_share_that_no_cell_has(store: Store) -> None:
    (heat,) = (chart for chart in charts(store, COMPARE) if chart.name.startswith("heat"))
    shares = [row["share"] for row in heat.spec["data"]["values"]]
    shown = heat.spec["spec"]["encoding"]["color"]["legend"]["values"]
    assert shown
    assert all(min(shares) <= one <= max(shares) for one in shown)


def test_what_scrolls_takes_the_keyboard_and_has_a_name_and_no_head_is_empty(page: str) -> None:
    tags = Tags()
    tags.feed(page)
    scrolls = [one for tag, one in tags.found if tag == "pre" or one.get("class") in ("wide", "picture")]
    assert len(scrolls) >= 8
    for one in scrolls:
        assert one.get("tabindex") == "0"
        assert one.get("role") in ("region", "img")
        assert one.get("aria-label")
    assert not re.search(r"<th[^>]*></th>", page)
    for at in (found.start() for found in re.finditer("<svg", page)):
        assert page[:at].endswith(
            '<div class="drawing" aria-hidden="true">'
        )  # the picture's name and its table say it


def test_a_check_says_first_whether_the_host_is_fit(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    page = report_html(store, CHECK)
    assert run(["show", CHECK, "--store", str(store.place)]) == 0
    headline = capsys.readouterr().out.split("\ncheck ")[0].replace("\n", " ")
    assert re.search(r"\b(NOT FIT|FIT): ", headline)
    text = html.unescape(" ".join(re.sub(r"<[^>]+>", " ", page).split()))
    assert headline in text
    assert "minimum detectable effect of a comparison of two arms" in text
    assert "undecided" not in text.split("Verified settings")[1]  # of its two equal arms none is said to be better
    assert not any(chart.name.startswith("forest") for chart in charts(store, CHECK))


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("-v 4000000", "`ulimit -v` allows 3906 MiB of address space, and pictures need"),
        ("-n 8", "could not be drawn: "),
        ("-n 12", "could not be drawn: "),
    ],
)
def test_where_the_drawing_library_would_abort_or_panic_a_sentence_says_so(
    limit: str, said: str, store: Store, tmp_path: Path
) -> None:
    target = tmp_path / "page.html"
    words = ("-m", "virtune", "show", "report", COMPARE, "--store", str(store.place), "-o", str(target))
    limited = ("bash", "-c", f'ulimit {limit}; exec "$@"', "bash", sys.executable, *words)
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 3, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not target.exists()


def test_a_table_of_many_rows_is_written_in_time_that_grows_with_them() -> None:
    rows = tuple((f"vm{number}", *(f"{number} of {column}" for column in range(5))) for number in range(3000))
    many = Table(caption="findings", columns=("VM", *"abcde"), rows=rows)
    whole = ReportPage(title="t", question="q", facts=(), label="", verdicts=(), settings=None, warnings=(), notes=(),
                       charts=(), tables=(many,), again="", host="")  # fmt: skip
    begun = time.process_time()
    text = page_html(whole)
    assert time.process_time() - begun < 20
    assert text.count('<td class="number">') == 5 * 3000


def test_intervals_of_speed_and_cost_are_crosses_around_the_candidate(store: Store) -> None:
    _, result = current(store, COMPARE)
    workload = result.study.workloads[0].name
    base = result.study.baseline
    candidate = next(arm.name for arm in result.study.arms if arm.name != base)
    costs = tuple(
        replace(one, values=(*one.values, Value(metric="cpu_per_io", value=5e-6, rounds=8, spread=None)))
        for one in result.arms
    )
    own = next(one for one in result.verdicts if one.candidate == candidate)
    ratio = Interval(estimate=1.5, low=1.25, high=2.0, confidence=0.95)
    judged = tuple(replace(own, metric=name, ratio=ratio) for name in ("iops", "cpu_per_io"))
    chart = speed_against_cost(replace(result, arms=costs, verdicts=judged, differences=()), workload)
    assert chart is not None
    rows = {row["arm"]: row for row in chart.spec["data"]["values"]}
    speed = result.value(base, workload, "iops")
    assert speed is not None
    assert rows[candidate]["iops_low"] == pytest.approx(1.25 * speed.shown)
    assert rows[candidate]["cost_high"] == pytest.approx(10.0)
    assert "iops_low" not in rows[base]
    assert f"intervals of the differences from {base}" in chart.reading
    plain = speed_against_cost(replace(result, arms=costs, verdicts=(), differences=()), workload)
    assert plain is not None
    assert "crosses" not in plain.reading


def test_a_page_begins_with_the_finding_its_intervals_and_what_limits_it(page: str, store: Store) -> None:
    """The proof is folded below; legends stand as text above the pictures, which draw none."""
    head, _, rest = page.partition("</header>")
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", head.partition("<body>")[2])).split())
    assert text.startswith("○ slow against free: undecided")
    assert '<span class="mark undecided">○</span>' in head
    assert head.count('class="bar"') == 1
    assert "trials count" in text
    assert rest.count("<details") > 4
    assert rest.index('id="pictures"') < rest.index('id="tables"') < rest.index('id="verdicts"')
    assert re.search(r'<li><span class="swatch line"[^>]*></span>free</li>', rest)
    assert "role-legend" not in rest.partition('id="heat')[0]


def test_places_on_the_axis_are_those_of_the_ratios() -> None:
    ratio = Interval(estimate=1.1, low=1.0, high=1.21, confidence=0.95)
    drawn = forest_of("x", [(ForestRow(name="b", verdict="better", words="+10 %"), ratio)], margin=0.03)
    (row,) = drawn.rows
    assert row.places is not None
    low, middle, high = row.places
    assert low == pytest.approx(50)
    assert middle - low == pytest.approx(high - middle)
    assert drawn.band[1] - 50 == pytest.approx(50 - drawn.band[0])
    assert drawn.ends == ("-23 %", "+30 %")
    none = forest_of("x", [(ForestRow(name="b", verdict="undecided", words=""), None)], margin=0.03)
    assert (none.rows[0].places, none.ends) == (None, ("", ""))


def test_a_layer_has_one_colour_in_all_pictures() -> None:
    first, last = LAYERS.layers
    more = replace(LAYERS, layers=(first, replace(last, boundary="backend", label="QEMU"), last))
    both = [times_of({"a": one}, "w") for one in (more, LAYERS)]
    whole, part = ({name: colour for name, colour, _ in legend_of(one)} for one in both if one is not None)
    assert len(part) == 2
    assert part.items() < whole.items()
    assert len(set(whole.values())) == len(whole)
