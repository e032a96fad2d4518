# SPDX-License-Identifier: Apache-2.0
"""`virtune.api`: what programs and notebooks use, and the notebook of the docs."""

import contextlib
import inspect
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.published import complaints
from virtune import api
from virtune.cli import run
from virtune.model.errors import PlanError, StoreError, UsageError, VirtuneError

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebook.ipynb"
ARMS = {"threads": "disk.aio=threads", "native": ["disk.aio=native", "disk.cache=none"]}


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def compared(**options: Any) -> api.StoredStudy:
    asked: dict[str, Any] = {"rig": "simulated", "seed": 3, "title": "Which engine?"} | options
    return api.compare(ARMS, **asked)


def test_the_notebook_runs_from_its_first_cell_to_its_last() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    names: dict[str, Any] = {}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        for cell in cells:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)  # noqa: S102 - our own page
    assert "native better" in said.getvalue() or "native undecided" in said.getvalue()
    assert names["page"].startswith("<!DOCTYPE html>")
    assert names["last"].id == names["study"].id
    assert all(not cell.get("outputs") for cell in cells), "figures of one host do not stand in it"


def test_a_study_is_what_the_command_line_says_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    events: list[object] = []
    made = compared(say=events.append)
    assert made.finished
    assert events
    assert (made.title, {one.arm for one in made.arms}) == ("Which engine?", {"threads", "native"})
    assert run(["show", "last", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(json.dumps(made.document()))
    assert complaints("result", document) == []
    assert [one.verdict for one in made.verdicts] == [one["verdict"] for one in document["comparisons"]]
    assert run(["show", "export", "last"]) == 0
    assert made.frame().num_rows == len(capsys.readouterr().out.splitlines()) - 1
    assert made.finding.startswith(("▲ native is better than threads", "○ native against threads"))


def test_studies_of_several_hosts_and_damaged_ones_are_read_each_for_itself(tmp_path: Path) -> None:
    first, second = compared(store=tmp_path / "kept"), compared(store=tmp_path / "kept", seed=4)
    with api.open(tmp_path / "kept") as studies:
        assert [one.name for one in studies] == [second.id, first.id]
        assert studies[first.id].result == first.result
        assert studies["last"].record == second.record
        with pytest.raises(UsageError):
            studies["none-of-them"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rigs": "simulated"}, "has no option 'rigs'"), ({"fail_if": "iops < -3%"}, "has no option"),
        ({"seconds": "long"}, "long"), ({"span": "4 apples"}, "apples"), ({"rounds": -1}, ""),
        ({"workloads": "no-such-load"}, "no-such-load"), ({"settings": ["disk.aio=sometimes"]}, "sometimes"),
        ({"rig": "moon"}, "moon"), ({"seconds": float("nan")}, ""), ({"margin": 7.0}, ""), ({"rounds": "many"}, ""),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_said_in_a_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(VirtuneError, match=said or None):
        compared(**options)


def test_no_store_and_no_store_of_ours_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no store"):
        api.open(tmp_path / "none")
    (tmp_path / "text").write_text("no store")
    with pytest.raises(StoreError), api.open(str(tmp_path / "text")) as studies:
        list(studies)
    with pytest.raises((UsageError, PlanError)):
        api.compare({"one": "rig=simulated"})


@pytest.mark.parametrize(("lacks", "of"), [("pyarrow", "frame"), ("jinja2", "html")])
def test_a_library_that_is_missing_is_told_with_what_installs_it(lacks: str, of: str) -> None:
    code = f"import sys; sys.modules[{lacks!r}] = None; from virtune import api; api.open()['last'].{of}()"
    compared()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"MissingToolError: the Python package {lacks} is not installed, and this needs it" in ran.stderr


def test_each_name_is_documented() -> None:
    for name in api.__all__:
        found = getattr(api, name)
        assert inspect.getdoc(found), name
        members = vars(found) if inspect.isclass(found) else {}
        for one, value in members.items():
            assert (
                one.startswith("_") or not (callable(value) or isinstance(value, property)) or inspect.getdoc(value)
            )
