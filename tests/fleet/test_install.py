# SPDX-License-Identifier: Apache-2.0
"""An install leaves alone what somebody else made, and leaves nothing where it fails; the chain has the rest."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.installed import ANSIBLE, MARK, ON_HOST, made, older, places
from tests.fleet.machines import Machines, machines
from tests.published import complaints

from virtune import __version__
from virtune.cli import run

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("fleet")]

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Hosts whose only virtune is what is installed there."""
    with machines(tmp_path_factory.mktemp("install"), "a", "b", "c") as found:
        for machine in found.by_name.values():
            (machine.place / "bin" / "virtune").unlink()
        yield found


def document(words: list[str], capfd: Capture, status: int = 0) -> dict[str, Any]:
    capfd.readouterr()
    assert run(["fleet", "install", "--json", *words]) == status, capfd.readouterr().err[-1500:]
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert complaints("fleet-install", found) == []
    return found


def test_each_host_that_fails_says_why_and_nothing_is_left_there(
    fleet: Machines, tmp_path: Path, capfd: Capture
) -> None:
    """Of one the wheels lack, the Python of another is hostile, and a third has none; the rest ssh refuses."""
    proof = tmp_path / "proof"
    hostile = f"{{{{ lookup('pipe', 'touch {proof}') }}}}"
    for name, does in {
        "a": 'exec python3 "$@"',
        "b": f'cat > /dev/null; echo "error: {hostile}" >&2; exit 1',
    }.items():
        (fleet.place / name / "python").write_text(f"#!/bin/sh\n{does}\n")
        (fleet.place / name / "python").chmod(0o755)
    (fleet.place / "twin").symlink_to(fleet.place / "a")
    hosts = ["--ssh-config", str(fleet.config), "--python", str(fleet.place / "{{ inventory_hostname }}" / "python")]
    names = [word for name in ("a", "b", "c", "twin", "newkey", "stranger") for word in ("--host", name)]
    found = document([*hosts, *names, "--wheelhouse", str(tmp_path), "--", *places(fleet)], capfd, status=1)
    said = {one["name"]: (one["because"], one["hint"]) for one in found["failed"]}
    assert "No matching distribution found for" in said["a"][0]
    assert said["a"][1] == "--wheelhouse DIR names a directory that has them"
    assert said["b"] == (hostile, None)
    assert not proof.exists()
    assert said["c"][0] == f"`{fleet.place}/c/python` is not installed there, or not on the PATH of ssh's commands"
    assert said["twin"][0] == "calls itself 'a', as a does: one host twice, or two hosts of one name"
    assert said["newkey"][0] == "its host key is not known"
    assert said["stranger"][0] == "ssh is not let in without a question"
    assert made(fleet.by_name["a"]) == []


PLAYBOOK = """#!/bin/sh
here=$(dirname "$0")
echo "$*" > "$here/calls"
for one in "$@"; do case $one in @*/asked.json) asked=${one#@} ;; esac; done
cp "$asked" "$here/asked"
cat "$here/told" > "$(sed 's/.*"virtune_results": "\\([^"]*\\)".*/\\1/' "$asked")"
cat "$here/said"
cat "$here/error" >&2
exit 2
"""
LOST = "the connection was lost before it was done"
GOOD = {"name": "a", "state": "installed", "before": "", "version": __version__}


@pytest.fixture
def playbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `ansible-playbook` that ends as it is told."""
    (tmp_path / "hosts").write_text("a ssh=ssh://ops@a.example:2222\n")
    (tmp_path / "ansible-playbook").write_text(PLAYBOOK)
    (tmp_path / "ansible-playbook").chmod(0o755)
    for name, text in {"told": "", "said": "PLAY RECAP ***\n", "error": ""}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


@pytest.mark.parametrize(
    ("told", "because"),
    [
        (json.dumps([GOOD]), None), ("", LOST), ("x", LOST), ("{}", LOST), ("[]", LOST), ("[3]", LOST),
        (json.dumps([GOOD | {"name": "b"}]), LOST), (json.dumps([GOOD | {"version": 3}]), LOST),
        (json.dumps([GOOD | {"state": "failed", "because": "a\nline\x1b[2J"}]), "Ansible: line[2J"),
        (json.dumps([GOOD | {"state": "failed"}]), "Ansible: it gave no reason"), (json.dumps([GOOD] * 10_000), LOST),
        (json.dumps([GOOD | {"state": "failed", "because": "error: no\x07\nhint: mend it"}]), "no?"),
        (json.dumps([GOOD | {"state": "failed", "because": "ssh: Connection refused"}]),
         "it refuses the connection: no sshd there"),
    ],
)  # fmt: skip
def test_how_it_ended_is_understood_or_the_host_is_lost(
    told: str, because: str | None, playbook: Path, capfd: Capture
) -> None:
    (playbook / "told").write_text(told)
    found = document(["-i", str(playbook / "hosts"), "--", "--become"], capfd, status=1 if because else 0)
    assert [one["because"] for one in found["failed"]] == ([because] if because else [])
    assert [one["before"] for one in found["hosts"]] == ([] if because else [None])
    assert (playbook / "calls").read_text().endswith("/playbooks/install.yml --become\n")
    asked = json.loads((playbook / "asked").read_text())
    assert (asked["virtune_state"], asked["virtune_upgrade"], asked["virtune_version"]) == (
        "present",
        False,
        __version__,
    )


def test_where_ansible_comes_to_nothing_its_reason_is_told(playbook: Path, capfd: Capture) -> None:
    (playbook / "said").write_text("")
    (playbook / "error").write_text("[ERROR]: no such vault\nusage: more\n")
    asked = ["fleet", "install", "-i", str(playbook / "hosts")]
    assert run(asked) == 3
    assert "error: ansible-playbook came to nothing: no such vault\n" in capfd.readouterr().err
    assert run([*asked, "--", "more.yml"]) == 2
    assert "'more.yml' is no option of ansible-playbook" in capfd.readouterr().err
    assert run([*asked, "--back", "--remove"]) == 2


make, drop, remove = ON_HOST["make"], ON_HOST["drop"], ON_HOST["remove"]


def own_notes(base: Path) -> Path:
    place = base / "0.1"
    (place / "bin").mkdir(parents=True)
    return place


def copied(base: Path) -> Path:
    make(base, base / "command", "0.2")
    shutil.copytree(base / "0.2", base / "0.3")
    shutil.rmtree(base / "0.2")
    return (base / "0.3").rename(base / "0.2")


def renamed(base: Path) -> Path:
    make(base, base / "command", "0.2")
    return (base / "0.2").rename(base / "kept")


def with_a_mark_of_another_kind(base: Path) -> Path:
    place = own_notes(base)
    (place / MARK).write_text(json.dumps({"names": [place.name]}))
    return place


def behind_a_link(base: Path) -> Path:
    place = own_notes(base).rename(base.parent / "elsewhere")
    (base / "0.4").symlink_to(place)
    return place


OTHERS = (own_notes, copied, renamed, with_a_mark_of_another_kind, behind_a_link)


@pytest.mark.parametrize("left", OTHERS, ids=lambda one: one.__name__)
def test_a_directory_that_no_install_made_stays(left: Callable[[Path], Path], tmp_path: Path) -> None:
    base, command = tmp_path / "opt", tmp_path / "bin" / "virtune"
    make(base, base / "command", "1.0")
    place = left(base)
    (place / "mine").write_text("precious")
    for one in sorted(base.iterdir()):
        if not one.name.startswith("made") and one.name != "1.0":
            with pytest.raises(SystemExit, match="no install made it"):
                make(base, base / "command", one.name)
    drop(base, command)
    remove(base, command)
    assert (place / "mine").read_text() == "precious"
    assert not (base / "1.0").exists()
    assert (base / MARK).exists()


@pytest.mark.parametrize("home", ["plain", "with blank", "DOMAIN\\user", "a\tb\nc", "ünï"])
def test_what_is_mounted_in_a_version_stays(home: str, tmp_path: Path) -> None:
    base = tmp_path / home / "opt"
    make(base, base / "command", "1.0")
    (precious := tmp_path / "precious").mkdir()
    (precious / "mine").write_text("all I have")
    (point := base / "1.0" / "deep").mkdir()
    subprocess.run(["mount", "--bind", precious, point], check=True)
    assert drop(base, tmp_path / "virtune") == {"dropped": []}
    assert (point / "mine").read_text() == "all I have"
    subprocess.run(["umount", "-l", point], check=True)
    assert drop(base, tmp_path / "virtune") == {"dropped": ["1.0"]}
    assert not (base / "1.0").exists()


def test_root_and_a_user_have_their_own_places() -> None:
    program = ANSIBLE / "roles" / "virtune" / "files" / "host.py"
    for user, place, command in (
        (0, "/opt/virtune", "/usr/local/bin/virtune"),
        (65534, "/nohome/.local/opt/virtune", "/nohome/.local/bin/virtune"),
    ):
        words = ["setpriv", f"--reuid={user}", "--clear-groups", "env", "HOME=/nohome", "/usr/bin/python3", "-"]
        said = subprocess.run(
            [*words, "look", "-", "-"], input=program.read_bytes(), capture_output=True, check=True
        ).stdout
        found = json.loads(said)
        assert (found["place"], found["command"]) == (place, command)


def test_a_command_and_a_place_of_somebody_else_are_refused(fleet: Machines, tmp_path: Path) -> None:
    look, machine = ON_HOST["look"], fleet.by_name["a"]
    base, command = machine.place / "opt", older(machine)
    assert (look(base, command)["version"], look(base, command)["previous"]) == ("0.0.9", "")
    command.unlink()
    command.symlink_to("/bin/true")
    with pytest.raises(SystemExit, match="virtune is there, and no install made it"):
        look(base, command)
    remove(base, tmp_path / "virtune")
    command.unlink()
    command.write_text("mine")
    with pytest.raises(SystemExit, match="no install made it"):
        look(base, command)
    remove(base, command)
    assert command.read_text() == "mine"
    command.unlink()
    own_notes(base)
    with pytest.raises(SystemExit, match="opt is there, and no install made it"):
        look(base, command)
    shutil.rmtree(base)


@pytest.mark.parametrize("name", ["opt/previous", "bin/virtune", "bin/.virtune"])
def test_a_file_in_place_of_a_link_stays(name: str, tmp_path: Path) -> None:
    base, command = tmp_path / "opt", tmp_path / "bin" / "virtune"
    make(base, base / "command", "1.0")
    command.parent.mkdir()
    (tmp_path / name).write_text("mine")
    with pytest.raises(SystemExit, match="no install made it"):
        ON_HOST["point"](base / "previous" if "opt" in name else command, "1.0")
    remove(base, command)
    assert (tmp_path / name).read_text() == "mine"


def test_nothing_but_the_whole_goes_with_what_was_made(tmp_path: Path) -> None:
    base, command = tmp_path / "opt", tmp_path / "virtune"
    for cut in ("", None):  # killed before it wrote the mark, and in the middle
        make(base, base / "command", "0.9")
        (base / "1.0").mkdir()
        if cut is not None:
            (base / "1.0" / MARK).write_text(cut)
        make(base, base / "command", "1.0")
        remove(base, command)
        assert not base.exists()


@pytest.mark.parametrize("link", ["command", "previous"])
def test_a_version_that_was_installed_meanwhile_is_not_made_anew(link: str, tmp_path: Path) -> None:
    base = tmp_path / "opt"
    make(base, base / "command", "1.0")
    (base / "1.0" / "bin").mkdir()
    (base / "1.0" / "bin" / "virtune").write_text("")
    (base / link).symlink_to(base / "1.0" / "bin" / "virtune" if link == "command" else "1.0")
    with pytest.raises(SystemExit, match="was installed meanwhile"):
        make(base, base / "command", "1.0")
    assert (base / "1.0" / "bin" / "virtune").exists()


def test_all_users_may_run_what_root_installed_whatever_its_umask(tmp_path: Path) -> None:
    base = tmp_path / "opt"
    make(base, base / "command", "1.0")
    (base / "1.0" / "bin").mkdir(mode=0o700)
    program = base / "1.0" / "bin" / "virtune"
    program.write_text("")
    program.chmod(0o700)
    ON_HOST["switch"](base, base / "command", "1.0")
    assert oct((base / "1.0" / "bin").stat().st_mode & 0o777) == oct(program.stat().st_mode & 0o777) == oct(0o755)
