# SPDX-License-Identifier: Apache-2.0
"""A Ceph cluster for tests: one monitor and one OSD that keeps its data in memory, as child processes."""

import contextlib
import os
import socket
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BESIDE = ROOT / ".venv" / "ceph-beside"
POOL = "disks"
_LIBRARIES = "root/usr/lib/x86_64-linux-gnu"


@dataclass(frozen=True)
class Cluster:
    """A running cluster: its configuration file, and a PATH with its programs and a QEMU that knows it."""

    conf: Path
    path: str

    def run(self, *words: str) -> str:
        """Run one of Ceph's programs and return what it printed."""
        program, *rest = words
        command = [str(BESIDE / "bin" / program), "--conf", str(self.conf), *rest]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextlib.contextmanager
def ceph(place: Path) -> Iterator[Cluster]:
    """Bring a cluster up in a directory, with one pool, and take it down."""
    subprocess.run([str(ROOT / "tools" / "ceph-beside")], check=True, timeout=900)
    ident, port = str(uuid.uuid4()), _free_port()
    for name in ("mon", "osd", "run"):
        (place / name).mkdir(parents=True)
    conf = place / "ceph.conf"
    conf.write_text(_CONF.format(ident=ident, port=port, place=place, libraries=BESIDE / _LIBRARIES))
    cluster = Cluster(conf, f"{BESIDE / 'bin'}:{os.environ['PATH']}")
    monmap = str(place / "monmap")
    made = ["monmaptool", "--create", "--fsid", ident, "--addv", "a", f"v2:127.0.0.1:{port}", monmap]
    cluster.run(*made)
    cluster.run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
    with contextlib.ExitStack() as ends:
        ends.enter_context(_served("ceph-mon", "a", conf, place))
        osd = str(uuid.uuid4())
        cluster.run("ceph", "osd", "new", osd)
        cluster.run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        ends.enter_context(_served("ceph-osd", "0", conf, place))
        cluster.run("ceph", "osd", "pool", "create", POOL, "8")
        yield cluster


@contextlib.contextmanager
def _served(program: str, name: str, conf: Path, place: Path) -> Iterator[None]:
    """Run a daemon in the foreground; it dies with this process."""
    command = [str(BESIDE / "bin" / program), "--conf", str(conf), "-f", "-i", name]
    with (place / f"{program}.out").open("wb") as said:
        child = subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        child.kill()
        child.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


_CONF = """[global]
fsid = {ident}
mon host = [v2:127.0.0.1:{port}]
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
auth allow insecure global id reclaim = false
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 1073741824
run dir = {place}/run
admin socket = {place}/run/$name.asok
log file = {place}/$name.log
crash dir = {place}
plugin dir = {libraries}/ceph
erasure code dir = {libraries}/ceph/erasure-code
osd class dir = {libraries}/rados-classes
mon data avail warn = 1
mon data avail crit = 0
[mon.a]
mon data = {place}/mon
[osd.0]
osd data = {place}/osd
"""
