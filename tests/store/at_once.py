# SPDX-License-Identifier: Apache-2.0
"""Several processes that write the same studies at once, and what is in a store afterwards, row by row."""

import functools
import gzip
import io
import json
import random
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import text
from tests.conftest import User
from tests.store.kept import COMPARE, IMPORT, KEPT

from virtune.cli import run
from virtune.flows.stored.import_bundle import merge, read_bundle, rows_bundle
from virtune.model.errors import StorePlace
from virtune.store.store import Store

Rows = list[tuple[object, ...]]
HOSTS = ("web1", "web1")
"""Whose studies are gathered at once: those of one host twice."""

_KILLED_SECONDS = 0.4
"""About as long as an import runs here."""


ATTEMPTS = 6
"""As many of the kept study's, so that to derive them takes little."""


def bundles(place: Path) -> list[Path]:
    """Write bundles of studies that an older method measured: of one also as it was before it ended."""
    kept = place / "kept.sqlite"
    kept.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with Store(kept) as store:
        compared, other = rows_bundle(store, COMPARE), rows_bundle(store, IMPORT)
    made = {
        "whole": begun(compared, ATTEMPTS, finished=True),
        "half": begun(compared, ATTEMPTS // 2, finished=False),
        "other": other,
    }
    for name, content in made.items():
        (place / f"{name}.zip").write_bytes(content)
    return [place / f"{name}.zip" for name in made]


def begun(content: bytes, attempts: int, *, finished: bool) -> bytes:
    """Return a bundle as it was when so many of its study's attempts were made."""

    def cut(text: bytes) -> bytes:
        rows = json.loads(text)
        return json.dumps(rows | {"finished": finished, "attempts": rows["attempts"][:attempts]}).encode()

    return changed(content, "/study.json", cut)


def changed(content: bytes, member: str, made: bytes | Callable[[bytes], bytes]) -> bytes:
    """Return a bundle with one member replaced, or made of what it was."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for one in old.infolist():
            text = old.read(one)
            if one.filename.endswith(member):
                text = made if isinstance(made, bytes) else made(text)
            new.writestr(one, text)
    return file.getvalue()


def rows_of(place: StorePlace) -> dict[str, Rows]:
    """Return all that a store holds, without the numbers that a database gives its rows."""
    columns = {
        "studies": "id, created, kind, study, facts, finished from studies",
        "trials": "study_id, number, attempt, round, arm, workload, ended, failure, in_force from trials",
        "captures": "study_id, number, attempt, name, content from captures join trials on id = trial_id",
        "measurements": "study_id, number, attempt, method, measurement from trials join measurements on trial_id=id",
    }
    with Store(place, reading=True) as store, store._backend.engine.connect() as db:
        found = {name: [tuple(row) for row in db.execute(text(f"select {one}"))] for name, one in columns.items()}
    found["captures"] = [(*row[:-1], zlib.decompress(bytes(row[-1]))) for row in found["captures"]]
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


@functools.cache
def alone(place: Path) -> tuple[list[Path], dict[str, Rows]]:
    """Import bundles one after the other, here and as those of other hosts, and derive them; return the bundles and
    what is in the store then.
    """
    paths, store = bundles(place), place / "alone.sqlite"
    for path in paths:
        assert run(["explain", "import", str(path), "--store", str(store)]) == 0
    for host in set(HOSTS):
        _gather(store, host, paths[0])
    assert run(["show", "derive", "--store", str(store)]) == 0
    return paths, rows_of(store)


def _gather(place: StorePlace, host: str, path: Path) -> int:
    with path.open("rb") as file, read_bundle(file, source="x") as bundled, Store(place, host=host) as store:
        return merge(bundled, store).attempts


@dataclass(frozen=True)
class AtOnce:
    """Importers, gatherers and derivers of one store, all at the same time."""

    user: User
    place: StorePlace
    paths: Sequence[Path]

    def go(self, *, seed: int, kills: int) -> int:
        """Let them go, kill so many of the processes, and return how many attempts of one's own the others say that
        they added.
        """
        chance = random.Random(seed)
        every = [("import", str(path)) for path in (*self.paths, *self.paths[:2])] + [("derive",)] * 2
        chance.shuffle(every)
        with ThreadPoolExecutor(len(HOSTS)) as pool:
            gathered = [pool.submit(_gather, self.place, host, self.paths[0]) for host in HOSTS]
            started = {self.user.start(*words, "--store", str(self.place)): words for words in every}
            victims = chance.sample(list(started), kills)
            for victim in victims:
                time.sleep(chance.uniform(0, _KILLED_SECONDS / kills))
                victim.kill()
            added = 0
            for one, words in started.items():
                out, err = one.communicate(120)
                killed = one in victims and one.returncode == -9
                too_early = words == ("derive",) and "there is no store" in err
                assert one.returncode == 0 or killed or too_early, (words, out, err)
                if words[0] == "import" and one.returncode == 0:
                    added += 0 if "nothing new" in out else int(out.split()[1])
            assert sum(one.result(120) for one in gathered) == ATTEMPTS * len(set(HOSTS))
        return added
