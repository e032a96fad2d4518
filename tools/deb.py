# SPDX-License-Identifier: Apache-2.0
"""Build the Debian package from the wheel of `tools.release`, for the Python of one distribution.

    python -m tools.deb [PYTHON] [WHEEL] [DIRECTORY]

PYTHON (`3.13` is Debian 13's) is that of the distribution that builds it, where no other is named. Needs cargo's
wheel, dpkg-deb and a package index for what the lock file names.
"""

import email.utils
import hashlib
import os
import platform
import subprocess
import sys
from pathlib import Path

from tools.release import commit_time
from tools.tree import (
    DESCRIPTION,
    HOME,
    ROOT,
    SUMMARY,
    laid_out,
    source_and_place,
    version_before_release,
    write,
    write_packed,
)

PYTHON = "/usr/bin/python3"
OPTIONS = "etc/default/virtune"

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
Description: {summary}
 {description}
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
    version = next(iter(sys.argv[1:]), "") or _python()
    wheel, place = source_and_place(sys.argv[2:], f"_{platform.machine()}.whl", "make release")
    zsh = "usr/share/zsh/vendor-completions"
    with laid_out(wheel, version=version, interpreter="python3", defaults=OPTIONS, zsh=zsh) as tree:
        _documents(tree)
        name = _control(tree, version)
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(tree), str(place / name)], check=True
        )


def _documents(tree: Path) -> None:
    """Write what Debian wants to read of every package."""
    write(tree / "usr/share/lintian/overrides/virtune", OVERRIDES)
    about = tree / "usr/share/doc/virtune"
    write(about / "copyright", COPYRIGHT.format(home=HOME))
    write_packed(about / "changelog.gz", (ROOT / "CHANGELOG.md").read_text())
    when = email.utils.formatdate(int(commit_time()))
    entry = f"virtune ({_version()}) unstable; urgency=medium\n\n  * See changelog.gz.\n\n"
    write_packed(about / "changelog.Debian.gz", f"{entry} -- {_maintainer()}  {when}\n")


def _control(tree: Path, version: str) -> str:
    """Write the control files; the name of the package's file. `version` is Python's."""
    major, minor = version.split(".")
    machine = subprocess.run(
        ["dpkg", "--print-architecture"], check=True, capture_output=True, text=True
    ).stdout.strip()
    size = sum(path.lstat().st_size for path in tree.rglob("*")) // 1024
    words = {"version": _version(), "machine": machine, "size": size, "maintainer": _maintainer()}
    words["depends"] = f"python3 (>= {version}), python3 (<< {major}.{int(minor) + 1}), {NEEDED}"
    words |= {"summary": SUMMARY, "description": DESCRIPTION.strip().replace("\n", "\n ")}
    write(tree / "DEBIAN/control", CONTROL.format(**words))
    write(tree / "DEBIAN/conffiles", f"/{OPTIONS}\n")
    write(tree / "DEBIAN/postinst", AFTER.format(python=f"/{HOME}/bin/python3", home=HOME), 0o755)
    write(tree / "DEBIAN/prerm", BEFORE_REMOVAL.format(home=HOME), 0o755)
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    sums = [
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(tree)}\n"
        for path in files
        if path.parent.name != "DEBIAN"
    ]
    write(tree / "DEBIAN/md5sums", "".join(sums))
    return f"virtune_{_version()}_python{version}_{machine}.deb"


def _python() -> str:
    """The version of the distribution's own Python."""
    asked = [PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def _version() -> str:
    return f"{version_before_release()}-1"


def _maintainer() -> str:
    """Who builds the package, as Debian's tools ask for it."""
    return f"{os.environ.get('DEBFULLNAME', 'virtune')} <{os.environ.get('DEBEMAIL', 'packager@example.org')}>"


if __name__ == "__main__":
    main()
