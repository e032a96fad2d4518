# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server of the tests' own: made by initdb in a directory of its own, reached by a socket in there."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from virtune.model.errors import DatabaseUrl

USER = "postgres"
"""Debian's package makes this user; a server refuses to run as root."""

UP_SECONDS = 120

_QUICK = ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "shared_buffers=8MB", "max_connections=20",
          "max_wal_senders=0", "autovacuum=off", "listen_addresses=", "logging_collector=off")  # fmt: skip
"""What is in there is thrown away; virtune itself asks for commits on the disk."""


@dataclass
class Server:
    """A running server; its superuser needs no password, the user `web` has the password `s3cret`."""

    place: Path
    process: "subprocess.Popen[bytes]"

    def url(self, database: str = "postgres", user: str = USER) -> DatabaseUrl:
        return DatabaseUrl(f"postgresql://{user}@/{database}?host={self.place}")

    def sql(self, *statements: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database).text, autocommit=True) as db:
            for statement in statements:
                db.execute(statement.encode())

    def new_database(self, name: str) -> DatabaseUrl:
        self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", f"CREATE DATABASE {name} STRATEGY file_copy")
        return self.url(name)


def programs() -> Path:
    """Where Debian keeps the server's programs: the newest version's."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda one: int(one.parts[-3]))
    assert found, "`tools/setup dev` installs PostgreSQL"
    return found[-1].parent


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """Start a server and end it with the block."""
    place = Path(tempfile.mkdtemp(prefix="vtpg", dir="/tmp"))
    try:
        user = pwd.getpwnam(USER)
        os.chown(place, user.pw_uid, user.pw_gid)
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        initdb = [programs() / "initdb", "-D", place / "data", "-U", USER, "-N", "-E", "UTF8", "--no-instructions"]
        subprocess.run(initdb, check=True, capture_output=True, env=env, cwd=place, timeout=UP_SECONDS, **who)  # type: ignore[call-overload]
        (place / "data" / "pg_hba.conf").write_text(f"local all {USER} trust\nlocal all all scram-sha-256\n")
        options = [word for one in (*_QUICK, f"unix_socket_directories={place}") for word in ("-c", one)]
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(
                [programs() / "postgres", "-D", place / "data", *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=place, start_new_session=True, **who,
            )  # type: ignore[call-overload]  # fmt: skip
        try:
            found = Server(place, process)
            _await(found)
            found.sql("CREATE ROLE web LOGIN PASSWORD 's3cret'")
            yield found
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(60)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _await(found: Server) -> None:
    deadline = time.monotonic() + UP_SECONDS
    while True:
        with contextlib.suppress(psycopg.OperationalError):
            found.sql("SELECT 1")
            return
        log = (found.place / "log").read_text()
        assert found.process.poll() is None, log
        assert time.monotonic() < deadline, log
        time.sleep(0.02)
