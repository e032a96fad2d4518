# SPDX-License-Identifier: Apache-2.0
"""What the packages of all distributions carry: an environment of its own, man pages, completion, the unit.

The environment lies in `/usr/lib/virtune`, for one version of Python: what it needs of Python's packages lies in it,
since no distribution has all of them new enough.
"""

import contextlib
import gzip
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

import virtune
from tools.release import commit_time
from virtune.cli import VERBS, cli

ROOT = Path(__file__).parents[1]
HOME = "usr/lib/virtune"
UV = str(Path(sys.executable).parent / "uv")
MAN = "click-man>=0.5,<0.6"

UNIT = """\
[Unit]
Description=virtune's stored studies as a local page, with metrics for Prometheus
Documentation=man:virtune-serve(1)

[Service]
EnvironmentFile=-/{defaults}
Environment=HOME=%h
ExecStart=/usr/bin/virtune serve --token-file ${{STATE_DIRECTORY}}/token $SERVE_OPTIONS
StateDirectory=virtune
StateDirectoryMode=0700
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""

DEFAULTS = """\
# Options of `virtune serve`, as the unit virtune-serve starts it (virtune-serve(1)).
SERVE_OPTIONS="--port 8787"
"""

SUMMARY = "disk I/O of virtual machines: measured, explained and tuned"

DESCRIPTION = """\
virtune probes a host and its VMs, audits their disks' configuration, measures
metal, QEMU's block layer and guests with fio, compares configurations with
confidence intervals, says what limits a disk, and applies changes to libvirt
domains with a diff, a journal and a way back.
"""


def source_and_place(words: Sequence[str], suffix: str, made_by: str) -> tuple[Path, Path]:
    """Return what a package is made from and the directory that it goes to: those that were named, else the newest of
    its kind in `dist/`, and that. Ends with what makes one where there is none.
    """
    places = [Path(word).resolve() for word in words]
    found = places[:1] or sorted((ROOT / "dist").glob(f"virtune*{suffix}"), key=lambda path: path.stat().st_mtime)
    if not found:
        sys.exit(f"error: no {suffix} in dist/: `{made_by}` builds it")
    return found[-1], places[1] if len(places) > 1 else ROOT / "dist"


@contextlib.contextmanager
def laid_out(wheel: Path, *, version: str, interpreter: str, defaults: str, zsh: str) -> Iterator[Path]:
    """Yield the tree of a package, which is gone afterwards with all that was put beside it.

    `version` (`3.12`) is that of the distribution's Python, which this host need not have, `interpreter` its name;
    `defaults` and `zsh` are the places where the distribution keeps a unit's options and zsh's completion.
    """
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="virtune-package-", dir="/var/tmp") as named:
        tree = Path(named) / "tree"
        _environment(wheel, tree, version, interpreter)
        _pages(tree, defaults=defaults, zsh=zsh)
        yield tree


def _environment(wheel: Path, tree: Path, version: str, interpreter: str) -> None:
    """Lay out the environment: its link to the distribution's interpreter, the packages and the programs."""
    home = tree / HOME
    packages = home / "lib" / f"python{version}" / "site-packages"
    packages.mkdir(parents=True)
    words = ["--target", str(packages), "--python", sys.executable, "--python-version", version, "--no-build"]
    words += ["--python-platform", f"{platform.machine()}-manylinux_2_28", "--constraint", "requirements/run.txt"]
    subprocess.run([UV, "-q", "pip", "install", *words, f"{wheel}[report,serve]"], cwd=ROOT, check=True)
    (home / "bin").mkdir()
    (home / "bin" / "python3").symlink_to(f"../../../bin/{interpreter}")
    (home / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {version}\n")
    for program in ("virtune", "virtune-demo"):
        module = "virtune.__main__" if program == "virtune" else "virtune.demo"
        write(
            home / "bin" / program,
            f"#!/{HOME}/bin/python3\nimport sys\n\nfrom {module} import main\n\nsys.exit(main())\n",
            0o755,
        )
    shutil.move(packages / "bin" / "virtune-load", home / "bin" / "virtune-load")
    if (guest := packages / "share" / "virtune").exists():
        shutil.move(guest, home / "share" / "virtune")
    (packages / ".lock").unlink(missing_ok=True)
    for rest in ("bin", "share"):
        shutil.rmtree(packages / rest, ignore_errors=True)
    (tree / "usr/bin").mkdir()
    for program in ("virtune", "virtune-demo", "virtune-load"):
        (tree / "usr/bin" / program).symlink_to(f"../lib/virtune/bin/{program}")
    for path in packages.rglob("*.so*"):
        path.chmod(0o644)


def _pages(tree: Path, *, defaults: str, zsh: str) -> None:
    """Write the unit, the file of its options, manual pages and completion."""
    write(tree / "usr/lib/systemd/system/virtune-serve.service", UNIT.format(defaults=defaults))
    write(tree / defaults, DEFAULTS)
    _manuals(tree / "usr/share/man/man1")
    places = {
        "bash": "usr/share/bash-completion/completions/virtune",
        "zsh": f"{zsh}/_virtune",
        "fish": "usr/share/fish/vendor_completions.d/virtune.fish",
    }
    for shell, place in places.items():
        environment = os.environ | {"_VIRTUNE_COMPLETE": f"{shell}_source"}
        made = subprocess.run(
            [sys.executable, "-m", "virtune"], env=environment, check=True, capture_output=True, text=True
        )
        write(tree / place, made.stdout)


def _manuals(place: Path) -> None:
    """Write a manual page of each command, from the rows of its `--help`."""
    place.mkdir(parents=True)
    code = (
        "import sys; from click_man.core import write_man_pages; from tools.tree import filled;"
        f"write_man_pages('virtune', filled(), version={virtune.__version__!r}, target_dir=sys.argv[1])"
    )
    with tempfile.TemporaryDirectory() as named:
        subprocess.run([UV, "-q", "pip", "install", "--target", named, "--no-deps", MAN], check=True)
        environment = os.environ | {"PYTHONPATH": named, "SOURCE_DATE_EPOCH": commit_time()}
        subprocess.run([sys.executable, "-c", code, str(place)], cwd=ROOT, env=environment, check=True)
    for page in place.iterdir():
        text = re.sub(r"^\.PP\n\n((?:.+\n)+)", r".PP\n.nf\n\1.fi\n", page.read_text(), flags=re.MULTILINE)
        write_packed(page.with_name(f"{page.name}.gz"), text)
        page.unlink()


def filled(group: click.Group = cli) -> click.Group:
    """Return a group with all its commands loaded, each with the whole first line of its help."""
    with click.Context(group) as context:
        names = VERBS if group is cli else group.list_commands(context)
        loaded = {name: group.get_command(context, name) for name in names}
    group.commands = {name: command for name, command in loaded.items() if command is not None}
    for command in group.commands.values():
        command.short_help = command.get_short_help_str(limit=300)
        if isinstance(command, click.Group):
            filled(command)
    return group


def version_before_release() -> str:
    """The version as dpkg and rpm sort it: a development version is before the release."""
    return re.sub(r"\.?(dev|a|b|rc)", r"~\1", virtune.__version__)


def pack(directory: Path, archive: Path) -> None:
    """Put all that a directory holds into an archive, and say the archive's name."""
    same = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", f"--mtime=@{commit_time()}"]
    subprocess.run(["tar", "-C", str(directory), *same, "-cf", str(archive), "."], check=True)
    sys.stdout.write(f"{archive}\n")


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file of the package, with the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def write_packed(path: Path, text: str) -> None:
    """Write a file that gzip packs, to the same bytes each time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
