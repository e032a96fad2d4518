# SPDX-License-Identifier: Apache-2.0
"""What a release wrote, and that every later one reads: a store, a plan, a recording, a history and a journal.

    python -m tests.formats.kept_formats

makes them by this version, with a real QEMU for what is seen of VMs, once: what is there is never made again.
"""

import gzip
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.guests.loaded import loading, null

from virtune import __version__
from virtune.apply.journal import Journal, Step
from virtune.flows.live.history import kept_looks
from virtune.model.domain import SettingChange

DATA = Path(__file__).with_name("data")
"""A directory for each version."""

PLAN = """\
title = "Does io_uring pay with qcow2?"
workload = ["randread-4k", "rw=randwrite,bs=16k,iodepth=4,fsync=8"]
rig = "simulated"
metric = "latency.mean"
baseline = "threads"
rounds = 6
seconds = 1
seed = 1
margin = 0.05
confidence = 0.9

[set]
disk.format = "qcow2"
disk.cluster_size = "128k"

[vary]
disk.aio = ["threads", "io_uring"]

[[arm]]
name = "writeback"
disk.cache = "writeback"
"""

_STUDIES = (
    ("compare", "--rig", "simulated", "--vary", "disk.aio=threads,io_uring", "--rounds", "6", "--seed", "1"),
    ("compare", "measure", "--rig", "simulated", "--rounds", "4", "--seed", "2"),
    ("tune", "--rig", "simulated", "--vary", "disk.aio=threads,native,io_uring", "--budget", "60s", "--seed", "3"),
    ("sweep", "--rig", "simulated", "--loads", "1000iops,4000iops,16000iops", "--rounds", "3", "--seed", "4"),
    ("host", "check", "--rig", "simulated", "--seconds", "10s", "--seed", "5"),
)


def said(*words: str) -> str:
    """Return what virtune writes to stdout."""
    command = [sys.executable, "-m", "virtune", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout


def _store(at: Path) -> list[dict[str, object]]:
    store = ("--store", str(at))
    for words in _STUDIES:
        said(*words, "--scratch", str(at.parent), "--span", "8M", *store)
    said("show", "label", "last", "--tag", "good", *store)
    return json.loads(said("show", "list", "--json", *store))["studies"]  # type: ignore[no-any-return]


def _of_a_vm(at: Path, folder: Path) -> None:
    with loading(folder, null(200_000)) as guest:
        monitor = ("--qmp", str(guest.socket))
        said("top", *monitor, "--record", str(at / "recording.jsonl"), "--interval", "1s", "--count", "3")
        watching = [sys.executable, "-m", "virtune", "watch", "virtune", "--if", "iops > 1", "--interval", "1s"]
        with subprocess.Popen([*watching, "--history", str(at / "history")], stdout=subprocess.DEVNULL) as watch:
            time.sleep(6)
            watch.send_signal(signal.SIGINT)
            watch.wait(30)


def _journal(at: Path) -> None:
    turns = [SettingChange(knob="disk.aio", at="vda", value=one) for one in ("native", None)]
    tune = ("virsh", "blkdeviotune", "web", "vda", "--total-iops-sec")
    journal = Journal(at)
    at.mkdir(mode=0o700)
    for name, steps in (("web", (Step.DEFINING, Step.DEFINED, Step.COMMITTED)), ("mail", (Step.DEFINING,))):
        entry = journal.begin(
            name=name, uri="qemu:///system", uuid="11111111-2222-4333-8444-555555555555", domain=name, turns=turns,
            live=[((*tune, "0"), (*tune, "100"))], before=f"<domain><name>{name}</name></domain>\n".encode(),
            after=b"<domain/>\n",
        )  # fmt: skip
        for step in steps:
            journal.step(entry, step)


def main() -> None:
    """Make the files of this version."""
    at = DATA / __version__.partition(".dev")[0]
    at.mkdir(parents=True)
    (at / "plan.toml").write_text(PLAN)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store.sqlite"
        studies = _store(store)
        (at / "store.sqlite.gz").write_bytes(gzip.compress(store.read_bytes(), mtime=0))
        _of_a_vm(at, Path(folder))
    _journal(at / "journal")
    table = said("top", "--replay", str(at / "recording.jsonl"), "--csv")
    looks, _ = kept_looks(at / "history", 0, float("inf"))
    held = {
        "studies": [{name: one[name] for name in ("id", "kind", "tags") if name in one} for one in studies],
        "recording": table,
        "history": [[one.vm, one.disk, round(one.wall_seconds, 3)] for one in looks],
        "journal": [[one.id, [step.value for step in one.steps]] for one in Journal(at / "journal").entries()],
    }
    (at / "said.json").write_text(json.dumps(held, indent=1) + "\n")


if __name__ == "__main__":
    main()
