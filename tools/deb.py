# SPDX-License-Identifier: Apache-2.0
"""Build the Debian package from the wheel of `tools.release`.

    python -m tools.deb [WHEEL] [DIRECTORY]

The package is an environment of its own in `/usr/lib/virtune`, for the Python of the distribution that it is built
on; what it needs of Python's packages lies in it, since no distribution has all of them new enough. Needs cargo's
wheel, dpkg-deb and a package index for what the lock file names.
"""

import email.utils
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

import virtune
from tools.release import commit_time
from virtune.cli import VERBS, cli

ROOT = Path(__file__).parents[1]
HOME = "usr/lib/virtune"
UV = str(Path(sys.executable).parent / "uv")
PYTHON = "/usr/bin/python3"
MAN = "click-man>=0.5,<0.6"

CONTROL = """\
Package: virtune
Version: {version}
Architecture: {machine}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: {depends}
Recommends: qemu-system-x86, busybox-static
Suggests: libvirt-clients, ceph-common, openssh-client, ansible-core
Section: utils
Priority: optional
Description: disk I/O of virtual machines: measured, explained and tuned
 virtune probes a host and its VMs, audits their disks' configuration, measures
 metal, QEMU's block layer and guests with fio, compares configurations with
 confidence intervals, says what limits a disk, and applies changes to libvirt
 domains with a diff, a journal and a way back.
"""

UNIT = """\
[Unit]
Description=virtune's stored studies as a local page, with metrics for Prometheus
Documentation=man:virtune-serve(1)

[Service]
EnvironmentFile=-/etc/default/virtune
Environment=HOME=%h
ExecStart=/usr/bin/virtune serve --token-file ${STATE_DIRECTORY}/token $SERVE_OPTIONS
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

AFTER = """\
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    {python} -m compileall -q /{home}/lib || true
    if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
fi
"""

BEFORE_REMOVAL = """\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl disable --now virtune-serve.service || true; fi
find /{home}/lib -name __pycache__ -type d -prune -exec rm -rf {{}} +
"""

OVERRIDES = """\
# wheels of others lie in it as their projects built them, since no distribution has all of them new enough
virtune: unstripped-binary-or-object
virtune: library-not-linked-against-libc
virtune: custom-library-search-path
virtune: embedded-library
# the environment's own interpreter, which is a link to the distribution's
virtune: wrong-path-for-interpreter
# our own programs run on every Linux, and as a guest without an operating system
virtune: statically-linked-binary
"""

NEEDED = "libc6 (>= 2.28), fio, qemu-system-common, qemu-utils, fuse3"
"""The packages that it needs besides its Python."""

COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: virtune

Files: *
Copyright: The virtune developers
License: Apache-2.0
 On Debian systems, the full text of the licence is in
 /usr/share/common-licenses/Apache-2.0.
Comment:
 The Python packages in /{home}/lib keep their licences in their dist-info
 directories; those of the crates in virtune-load and virtune-guest are in
 virtune's own, as LICENSES-CRATES.txt.
"""


def main() -> None:
    """Write the package into DIRECTORY (`dist`), and say its name."""
    given = sys.argv[1:]
    wheels = sorted((ROOT / "dist").glob("virtune-*.whl"))
    wheel = (
        Path(given[0]) if given else wheels[-1] if wheels else sys.exit("error: no wheel: `make release` builds it")
    )
    place = Path(given[1] if len(given) > 1 else "dist").resolve()
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="virtune-deb-", dir="/var/tmp") as named:
        tree = Path(named) / "tree"
        _install(wheel.resolve(), tree)
        _documents(tree)
        name = _control(tree)
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(tree), str(place / name)], check=True
        )


def _install(wheel: Path, tree: Path) -> None:
    """Lay out the environment: the interpreter of the distribution, our packages, the programs."""
    home, version = tree / HOME, _python()
    packages = home / "lib" / f"python{version}" / "site-packages"
    packages.mkdir(parents=True)
    words = ["--target", str(packages), "--python", PYTHON, "--constraint", "requirements/run.txt", "--no-build"]
    subprocess.run([UV, "-q", "pip", "install", *words, f"{wheel}[report,serve]"], cwd=ROOT, check=True)
    (home / "bin").mkdir()
    (home / "bin" / "python3").symlink_to("../../../bin/python3")
    (home / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {version}\n")
    for program in ("virtune", "virtune-demo"):
        module = "virtune.__main__" if program == "virtune" else "virtune.demo"
        _write(
            home / "bin" / program,
            f"#!/{HOME}/bin/python3\nimport sys\n\nfrom {module} import main\n\nsys.exit(main())\n",
            0o755,
        )
    shutil.move(packages / "bin" / "virtune-load", home / "bin" / "virtune-load")
    shutil.move(packages / "share" / "virtune", home / "share" / "virtune")
    (packages / ".lock").unlink(missing_ok=True)
    for rest in ("bin", "share"):
        shutil.rmtree(packages / rest, ignore_errors=True)
    (tree / "usr/bin").mkdir()
    for program in ("virtune", "virtune-demo", "virtune-load"):
        (tree / "usr/bin" / program).symlink_to(f"../lib/virtune/bin/{program}")
    for path in packages.rglob("*.so*"):
        path.chmod(0o644)


def _documents(tree: Path) -> None:
    """Write the unit, its defaults, manual pages, completion and what Debian wants to read of every package."""
    _write(tree / "usr/lib/systemd/system/virtune-serve.service", UNIT)
    _write(tree / "etc/default/virtune", DEFAULTS)
    _write(tree / "usr/share/lintian/overrides/virtune", OVERRIDES)
    _manuals(tree / "usr/share/man/man1")
    places = {
        "bash": "usr/share/bash-completion/completions/virtune",
        "zsh": "usr/share/zsh/vendor-completions/_virtune",
        "fish": "usr/share/fish/vendor_completions.d/virtune.fish",
    }
    for shell, place in places.items():
        environment = os.environ | {"_VIRTUNE_COMPLETE": f"{shell}_source"}
        made = subprocess.run(
            [sys.executable, "-m", "virtune"], env=environment, check=True, capture_output=True, text=True
        )
        _write(tree / place, made.stdout)
    about = tree / "usr/share/doc/virtune"
    _write(about / "copyright", COPYRIGHT.format(home=HOME))
    _packed(about / "changelog.gz", (ROOT / "CHANGELOG.md").read_text())
    when = email.utils.formatdate(int(commit_time()))
    entry = f"virtune ({_version()}) unstable; urgency=medium\n\n  * See changelog.gz.\n\n"
    _packed(about / "changelog.Debian.gz", f"{entry} -- {_maintainer()}  {when}\n")


def _manuals(place: Path) -> None:
    """Write a manual page of each command, from the rows of its `--help`."""
    place.mkdir(parents=True)
    code = (
        "import sys; from click_man.core import write_man_pages; from tools.deb import filled;"
        f"write_man_pages('virtune', filled(), version={virtune.__version__!r}, target_dir=sys.argv[1])"
    )
    with tempfile.TemporaryDirectory() as named:
        subprocess.run([UV, "-q", "pip", "install", "--target", named, "--no-deps", MAN], check=True)
        environment = os.environ | {"PYTHONPATH": named, "SOURCE_DATE_EPOCH": commit_time()}
        subprocess.run([sys.executable, "-c", code, str(place)], cwd=ROOT, env=environment, check=True)
    for page in place.iterdir():
        text = re.sub(r"^\.PP\n\n((?:.+\n)+)", r".PP\n.nf\n\1.fi\n", page.read_text(), flags=re.MULTILINE)
        _packed(page.with_name(f"{page.name}.gz"), text)
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


def _control(tree: Path) -> str:
    """Write the control files; the name of the package's file."""
    version = _python()
    major, minor = version.split(".")
    machine = subprocess.run(
        ["dpkg", "--print-architecture"], check=True, capture_output=True, text=True
    ).stdout.strip()
    size = sum(path.lstat().st_size for path in tree.rglob("*")) // 1024
    words = {"version": _version(), "machine": machine, "size": size, "maintainer": _maintainer()}
    words["depends"] = f"python3 (>= {version}), python3 (<< {major}.{int(minor) + 1}), {NEEDED}"
    _write(tree / "DEBIAN/control", CONTROL.format(**words))
    _write(tree / "DEBIAN/conffiles", "/etc/default/virtune\n")
    _write(tree / "DEBIAN/postinst", AFTER.format(python=f"/{HOME}/bin/python3", home=HOME), 0o755)
    _write(tree / "DEBIAN/prerm", BEFORE_REMOVAL.format(home=HOME), 0o755)
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    sums = [
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(tree)}\n"
        for path in files
        if path.parent.name != "DEBIAN"
    ]
    _write(tree / "DEBIAN/md5sums", "".join(sums))
    return f"virtune_{_version()}_python{version}_{machine}.deb"


def _python() -> str:
    asked = [PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def _version() -> str:
    """The version as Debian sorts it: a development version is before the release."""
    return re.sub(r"\.?(dev|a|b|rc)", r"~\1", virtune.__version__) + "-1"


def _maintainer() -> str:
    """Who builds the package, as Debian's tools ask for it."""
    return f"{os.environ.get('DEBFULLNAME', 'virtune')} <{os.environ.get('DEBEMAIL', 'packager@example.org')}>"


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _packed(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
