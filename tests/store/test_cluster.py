# SPDX-License-Identifier: Apache-2.0
"""Studies derived by the workers of a real Dask cluster: a killed one loses nothing, without TLS nothing is done."""

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest
from tests.conftest import eventually
from tests.dasks import QUICK, Dask, cluster, noted
from tests.postgres import Server
from tests.published import complaints
from tests.store.kept import COMPARE, IMPORT, KEPT, moved

from virtune.cli import run
from virtune.model.errors import DatabaseUrl, PreconditionError, UsageError
from virtune.model.measurement import METHOD
from virtune.store.store import Store
from virtune.workers import dask_cluster, divided

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("postgres")]


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dask]:
    """Two workers."""
    with cluster(tmp_path_factory.mktemp("dask")) as found:
        yield found


@contextlib.contextmanager
def configured(found: Dask) -> Iterator[None]:
    """Have Dask's own configuration name the certificates of a cluster."""
    import dask.config
    import distributed  # noqa: F401 - its own defaults come first

    names = {"CA_FILE": "ca-file", "CLIENT__CERT": "client.cert", "CLIENT__KEY": "client.key"}
    files = {name: found.environment[f"DASK_DISTRIBUTED__COMM__TLS__{key}"] for key, name in names.items()}
    with dask.config.set({f"distributed.comm.tls.{name}": file for name, file in files.items()}):
        yield


def test_what_a_killed_worker_had_is_done_again_and_all_comes_in_order(dask: Dask, tmp_path: Path) -> None:
    place = tmp_path / "done"
    place.mkdir()
    with configured(dask), dask_cluster(dask.address) as (executor, at_once):
        assert at_once == 2
        found = divided(partial(noted, str(place)), range(24), executor=executor)
        first, (killed, *_) = [next(found) for _ in range(QUICK)], dask.workers()
        assert eventually(lambda: str(killed) in pids(place, range(QUICK, 24)), seconds=60), "it was given nothing"
        os.kill(killed, signal.SIGKILL)
        Path(f"{place}.killed").touch()
        assert [*first, *found] == list(range(24))
    assert len([*place.iterdir()]) == 24
    twice = [ran for number in range(24) if len(ran := pids(place, [number])) > 1]
    assert any(str(killed) in ran for ran in twice), "nothing was done again"


def pids(place: Path, numbers: Iterable[int]) -> list[str]:
    """The processes that did these numbers."""
    files = (place / str(number) for number in numbers)
    return [pid for one in files if one.exists() for pid in one.read_text().split()]


def test_a_database_is_derived_by_a_cluster_once_though_all_workers_are_killed(
    postgres: Server, dask: Dask, tmp_path: Path
) -> None:
    url, place = postgres.new_database("v"), tmp_path / "before.sqlite"
    place.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with Store(place) as before, Store(url) as after:
        moved(before, after, COMPARE)
        moved(before, after, IMPORT)
    words = ["show", "derive", "--json", "--store", url.text, "--cluster", dask.address]
    with Store(url) as other, other.claimed(COMPARE) as mine:
        assert mine
        process = subprocess.Popen(
            [sys.executable, "-m", "virtune", *words],
            stdout=subprocess.PIPE, text=True, env=os.environ | dask.environment,
        )  # fmt: skip
        try:
            assert eventually(lambda: waiting(url), seconds=120), "no worker waits for what is claimed"
            for pid in dask.workers():  # what the first one had may be begun by the second one before that is killed
                ((killed,),) = asked(url, "select now()")
                os.kill(pid, signal.SIGKILL)
            # the server sees that those before are gone when it gives them the lock
            assert eventually(lambda: waiting(url, since=killed), seconds=120), (
                "what the killed worker had was not begun again"
            )
        except BaseException:
            process.kill()
            process.communicate()
            raise
    with process:
        found = json.loads(process.communicate(timeout=120)[0])
    assert process.returncode == 0
    assert complaints("derive", found) == []
    derived = {one["id"]: one["derived"] + one["current"] for one in found["studies"]}
    assert derived == {COMPARE: 16, IMPORT: 1}
    counted = "select method, count(*) from virtune.measurements where method > 0 group by method order by method"
    assert asked(url, counted)[-1] == (METHOD, 17)


def asked(url: DatabaseUrl, query: str, *values: object) -> list[tuple[object, ...]]:
    with psycopg.connect(url.text) as db:
        return db.execute(query.encode(), values).fetchall()


def waiting(url: DatabaseUrl, since: object = "-infinity") -> bool:
    """Whether a session that began after a time waits for a study that another one keeps."""
    waits = "select 1 from pg_locks natural join pg_stat_activity where not granted and backend_start > %s"
    return bool(asked(url, waits, since))


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:8786", "127.0.0.1:8786", "tls://127.0.0.1", "tls://a/b:1", ""])
def test_an_address_without_tls_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a cluster that is reached by TLS"):
        dask_cluster(address).__enter__()


def test_what_a_cluster_cannot_be_asked_is_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    derive = ["show", "derive", "--cluster", "tls://127.0.0.1:9"]
    (tmp_path / "store").write_bytes(gzip.decompress(KEPT.read_bytes()))
    assert run([*derive, "--store", str(tmp_path / "store")]) == 2
    assert "is a file of this machine, which the workers of a cluster do not see" in capfd.readouterr().err
    assert run(["show", "derive", "--cluster", "tcp://127.0.0.1:9", "--store", "postgresql:///x"]) == 2
    assert "is not the address of a cluster that is reached by TLS" in capfd.readouterr().err
    assert run([*derive, "--parallel", "2", "--store", "postgresql:///x"]) == 2
    assert "--parallel counts processes of this machine" in capfd.readouterr().err
    with pytest.raises(PreconditionError, match=r"cannot use the cluster tls://127\.0\.0\.1:9") as found:
        dask_cluster("tls://127.0.0.1:9").__enter__()
    assert "Dask's own configuration" in (found.value.hint or "")
