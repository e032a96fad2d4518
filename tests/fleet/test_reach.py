# SPDX-License-Identifier: Apache-2.0
"""Hosts without ssh: this machine itself, and pods by a program in the place of kubectl that runs what it is told."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import eventually
from tests.published import complaints

from virtune.cli import run
from virtune.fleet.inventory import read_inventory
from virtune.fleet.reach import Connection
from virtune.fleet.ssh import HostError
from virtune.model.errors import UsageError
from virtune.model.evidence import Listed
from virtune.model.fleet import FleetHost
from virtune.store.store import Store
from virtune.warden import MARK

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("fleet")]

Capture = pytest.CaptureFixture[str]
PROGRAM = Path(sys.executable).parent / "virtune"
STUDY = ["compare", "--arm", "x:rig=simulated", "--arm", "y:rig=simulated,disk.aio=io_uring", "--seed", "3"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data of this machine's own virtune."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "virtune"


def document(words: list[str], capfd: Capture, status: int = 0) -> dict[str, Any]:
    capfd.readouterr()
    assert run(words) == status, capfd.readouterr().err[-1500:]
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return found


def kept(store: Path) -> list[tuple[str, int]]:
    """The studies of a store with their attempts."""
    with Store(store, reading=True) as found:
        ids = [one.study.id for one in found.list() if isinstance(one, Listed)]
        return [(one, len(found.get(one).attempts)) for one in ids]


def test_this_machine_goes_on_with_its_study_when_the_fleet_that_began_it_is_killed(
    home: Path, tmp_path: Path, capfd: Capture
) -> None:
    (tmp_path / "hosts").write_text("me reach=local rack=1\n")
    asked = ["-i", str(tmp_path / "hosts"), "--virtune", str(PROGRAM)]
    place = ["--into", str(tmp_path / "all"), "--json"]
    (one,) = document(["fleet", "inventory", "-i", str(tmp_path / "hosts"), "--json"], capfd)["hosts"]
    assert (one["target"], one["address"], one["port"], one["labels"]) == ("local", None, None, {"rack": "1"})
    words = [sys.executable, "-m", "virtune", "fleet", "run", *asked, *place, *STUDY]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path) as controller:
        try:
            pid = carrier(home)
            os.kill(pid, signal.SIGSTOP)
            assert MARK.encode() not in Path(f"/proc/{pid}/environ").read_bytes(), "the fleet's guard would end it"
        finally:
            controller.kill()
    os.kill(pid, signal.SIGCONT)
    (task,) = document(["fleet", "run", "--again", "last", *place], capfd)["tasks"]
    assert (task["host"], task["state"], task["trials_done"]) == ("me", "finished", 12)
    (listed,) = document(["fleet", "runs", "--json"], capfd)["runs"]
    assert [listed[key] for key in ("hosts", "finished", "failed", "open")] == [1, 1, 0, 0]
    assert kept(home / "virtune.sqlite") == kept(tmp_path / "all" / "me.sqlite") == [(task["study"], 12)]


def carrier(home: Path) -> int:
    """Wait until a study runs here and return the number of its process."""
    found: list[int] = []

    def begun() -> bool:
        with contextlib.suppress(ValueError, OSError):
            (task,) = (home / "fleet-tasks").glob("*")
            found[:] = [int((task / "pid").read_text())]
            return (task / "study").exists()
        return False

    assert eventually(begun, seconds=120)
    return found[0]


STUB = """#!/bin/sh
# what kubectl exec does, on this machine: each pod is a directory with its own data and its own name
echo "$PWD $*" >> {place}/calls
[ "$1 $2" = "exec -n" ] || {{ echo "error: unknown command \\"$1\\"" >&2; exit 1; }}
pod={place}/$3/$4 name=$4 fed=/dev/null
shift 4
while [ "$1" != -- ]; do [ "$1" != -i ] || fed=/dev/stdin; shift; done
shift
[ -d $pod ] || {{ echo "Error from server (NotFound): pods \\"$name\\" not found" >&2; exit 1; }}
echo $$ > $pod/kubectl
XDG_DATA_HOME=$pod/data unshare --uts sh -c 'hostname "$0"; exec "$@"' $name "$@" < $fed
status=$?
[ $status = 0 ] || echo "command terminated with exit code $status" >&2
exit $status
"""


@pytest.fixture
def pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two pods, and a program `kubectl` that runs in them what it is told."""
    place = tmp_path / "pods"
    for pod in ("virtune-1", "virtune-2"):
        (place / "measuring" / pod).mkdir(parents=True)
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(STUB.format(place=place))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return place


def test_pods_are_measured_by_kubectl_and_a_connection_that_is_cut_costs_no_trial(
    pods: Path, tmp_path: Path, capfd: Capture
) -> None:
    nodes = "node1 reach=kubectl:measuring/virtune-1\nnode2 reach=kubectl:measuring/virtune-2/measure\n"
    (tmp_path / "hosts").write_text(f"{nodes}gone reach=kubectl:measuring/virtune-0\n")
    asked = ["-i", str(tmp_path / "hosts"), "--virtune", str(PROGRAM), "--into", str(tmp_path / "all")]
    second, cut = pods / "measuring" / "virtune-2", list[int]()

    def disturb() -> None:
        pid = carrier(second / "data" / "virtune")
        os.kill(pid, signal.SIGSTOP)  # so that it is followed
        cut.append(int((second / "kubectl").read_text()))
        os.kill(cut[0], signal.SIGKILL)
        os.kill(pid, signal.SIGCONT)

    other = threading.Thread(target=disturb)
    other.start()
    try:
        found = document(["fleet", "run", *asked, "--json", *STUDY], capfd, status=1)
    finally:
        other.join()
    assert complaints("fleet-run", found) == []
    assert cut
    tasks = {one["host"]: one for one in found["tasks"]}
    assert {name: one["state"] for name, one in tasks.items()} == {
        "node1": "finished",
        "node2": "finished",
        "gone": "failed",
    }
    assert tasks["gone"]["because"] == "there is no such pod"
    for name, pod in (("node1", "virtune-1"), ("node2", "virtune-2")):
        there = pods / "measuring" / pod / "data" / "virtune" / "virtune.sqlite"
        assert kept(there) == kept(tmp_path / "all" / f"{name}.sqlite") == [(tasks[name]["study"], 12)]
    calls = (pods / "calls").read_text()
    assert "exec -n measuring virtune-2 -c measure -- " in calls
    assert " -i " not in calls, "nothing was sent"
    assert {line.partition(" ")[0] for line in calls.splitlines()} == {str(tmp_path)}, "a KUBECONFIG may be relative"


def test_the_words_of_a_command_in_a_pod_and_how_it_ended_there_arrive(pods: Path, tmp_path: Path) -> None:
    host = FleetHost(name="node1", target="kubectl:measuring/virtune-1")
    words = (str(tmp_path / "bin" / "kubectl"), "exec", "-n", "measuring", "virtune-1")
    pod = Connection(host=host, words=words)
    hostile = "a b'c$(x)\n"
    done = pod.run(["printf", "%s", hostile], timeout_seconds=60, most_bytes=1000)
    assert done.stdout == hostile, "no shell reads it"
    assert pod.run(["sh", "-c", "exit 1"], timeout_seconds=60, most_bytes=1000, ok=(0, 1)).status == 1
    for command, said in (
        (["sh", "-c", "echo error: it broke >&2; exit 3"], "it broke"),
        (["nowhere"], "`nowhere` is not installed there, or not on the PATH of its container"),
    ):
        with pytest.raises(HostError, match=said):
            pod.run(command, timeout_seconds=60, most_bytes=1000)


@pytest.mark.parametrize(
    ("status", "said", "why"),
    [
        (0, "", None),
        (1, "error: it broke\ncommand terminated with exit code 1\n", None),
        (137, "command terminated with exit code 137\n", None),
        (1, 'Error from server (NotFound): pods "a" not found\n', "there is no such pod"),
        (1, "error: unable to upgrade connection: pod does not exist\n", "there is no such pod"),
        (1, "Error from server (BadRequest): container x is not valid for pod a\n", "no such container"),
        (1, "error: You must be logged in to the server (Unauthorized)\n", "kubectl is not let in"),
        (1, 'Error from server (Forbidden): pods "a" is forbidden: User "u" cannot create\n', "is not let in"),
        (1, "The connection to the server 10.0.0.1:6443 was refused - did you\n", "the cluster does not answer"),
        (1, "Unable to connect to the server: dial tcp: i/o timeout\n", "the cluster does not answer"),
        (1, 'error: Internal error occurred: exec: "sh": executable file not found in $PATH\n', "has not what is"),
        (1, "error: unexpected EOF\n", "the connection was lost: error: unexpected EOF"),
        (-9, "", "the connection was lost"),
    ],
)
def test_what_kubectl_says_is_told_from_what_the_command_did(status: int, said: str, why: str | None) -> None:
    lost = Connection(host=FleetHost(name="n", target="kubectl:a/b"), words=()).lost(status, said)
    if why is None:
        assert lost is None
    else:
        assert lost is not None
        assert why in lost.message


def test_ansible_s_connections_say_how_a_host_is_reached() -> None:
    variables = {
        "here": {"ansible_connection": "local"},
        "node1": {"ansible_connection": "kubernetes.core.kubectl", "ansible_kubectl_pod": "virtune-1"},
        "node2": {"ansible_connection": "kubectl", "ansible_kubectl_namespace": "m", "ansible_kubectl_pod": "p",
                  "ansible_kubectl_container": "c"},
    }  # fmt: skip
    text = json.dumps({"_meta": {"hostvars": variables}, "all": {"hosts": [*variables]}})
    targets = {one.name: (one.way, one.target) for one in read_inventory(text, source="ansible")}
    assert targets == {
        "here": ("local", "local"),
        "node1": ("kubectl", "kubectl:default/virtune-1"),
        "node2": ("kubectl", "kubectl:m/p/c"),
    }


def test_a_host_that_ssh_reaches_is_never_taken_for_this_machine_or_a_pod() -> None:
    for text in ("local", "x ssh=local", "Host local", '{"all": {"hosts": ["local"]}, "_meta": {"hostvars": {}}}'):
        (found,) = read_inventory(text, source="hosts")
        assert (found.way, found.target) == ("ssh", "ssh://local")
    (found,) = read_inventory("x ssh=kubectl:1", source="hosts")
    assert found.way == "ssh"


@pytest.mark.parametrize(
    "line",
    ["a reach=-n", "a reach=kubectl:a", "a reach=kubectl:-n/x", "a reach=kubectl:a/-c", "a reach=kubectl:a/b/c/d",
     "a reach=kubectl:a/$(x)", "a reach=docker:a", "a reach=local ssh=b"],
)  # fmt: skip
def test_what_is_no_way_to_a_host_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match=r"is no way to a host|by ssh or otherwise"):
        read_inventory(line, source="hosts")
