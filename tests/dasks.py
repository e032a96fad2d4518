# SPDX-License-Identifier: Apache-2.0
"""A Dask cluster of the tests' own: a scheduler and workers, all of them processes, and TLS between them.

python -m tests.dasks FOLDER WORKERS
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import eventually

TLS = "DASK_DISTRIBUTED__COMM__TLS__"
UP_SECONDS = 120


@dataclass(frozen=True)
class Dask:
    """A cluster: its process, its scheduler's address, and where a client finds its certificates."""

    process: int
    address: str
    environment: Mapping[str, str]

    def workers(self) -> list[int]:
        """The process ids of its workers; one that was killed is soon replaced."""
        children = Path(f"/proc/{self.process}/task").glob("*/children")
        pids = [int(pid) for one in children for pid in one.read_text().split()]
        return [pid for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@contextlib.contextmanager
def cluster(place: Path, workers: int = 2) -> Iterator[Dask]:
    """Start a cluster and end it with the block."""
    told, words = place / "told.json", [sys.executable, "-m", "tests.dasks", str(place), str(workers)]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=Path(__file__).parents[1]
        )
    with process:
        try:
            assert eventually(lambda: told.exists() or process.poll() is not None, seconds=UP_SECONDS)
            assert told.exists(), (place / "log").read_text()
            found = json.loads(told.read_text())
            yield Dask(
                process=process.pid,
                address=found["address"],
                environment={f"{TLS}CA_FILE": str(place / "ca.pem"), f"{TLS}CLIENT__CERT": str(place / "ca.pem"),
                             f"{TLS}CLIENT__KEY": str(place / "key.pem")},
            )  # fmt: skip
        finally:
            assert process.stdin is not None
            process.stdin.close()  # it ends the cluster, and with it the workers
            try:
                process.wait(UP_SECONDS)
            finally:
                process.kill()


QUICK = 4


def noted(place: str, number: int) -> int:
    """What a worker does: it notes its process id under a number and returns the number; all but the first QUICK
    ones wait until there is a file `place`.killed.
    """
    with (Path(place) / str(number)).open("a") as file:
        file.write(f"{os.getpid()}\n")
    assert number < QUICK or eventually(Path(f"{place}.killed").exists, seconds=UP_SECONDS)
    return number


def main(place: Path, workers: int) -> None:
    from distributed import LocalCluster, Security

    security = Security.temporary()
    (place / "ca.pem").write_text(security.tls_ca_file)
    (place / "key.pem").write_text(security.tls_client_key)
    with LocalCluster(
        n_workers=workers, threads_per_worker=1, security=security, host="tls://127.0.0.1",
        dashboard_address=None, local_directory=str(place),
    ) as found:  # fmt: skip
        (place / "told.new").write_text(json.dumps({"address": found.scheduler_address}))
        (place / "told.new").rename(place / "told.json")
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
