# SPDX-License-Identifier: Apache-2.0
"""Build a package for Fedora, RHEL, openSUSE and their like from the wheel of `tools.release`.

    python -m tools.rpm [PYTHON] [WHEEL] [DIRECTORY]

PYTHON (3.12) is the version of the distribution's Python that it is for; this host needs rpmbuild, not that Python.
Programs are asked for by their paths, since the packages that have them have other names in each distribution.
"""

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
)

OPTIONS = "etc/sysconfig/virtune"
LICENCE = "usr/share/licenses/virtune/LICENSE"

SPEC = """\
# the environment is shipped as the projects of its packages built them: nothing is stripped, compiled or searched
%global __os_install_post %{{nil}}
%global debug_package %{{nil}}
%global _build_id_links none
%global _binary_payload w6.gzdio
%global use_source_date_epoch_as_buildtime 1
%global clamp_mtime_to_source_date_epoch 1

Name: virtune
Version: {version}
Release: 1
Summary: {summary}
License: Apache-2.0
AutoReqProv: no
Requires: /usr/bin/{interpreter}
Requires: libc.so.6(GLIBC_2.28)(64bit)
Requires: /usr/bin/fio
Requires: /usr/bin/qemu-img
Recommends: /usr/bin/qemu-storage-daemon
Recommends: /usr/bin/fusermount3
Suggests: /usr/bin/virsh

%description
{description}
%install
cp -a {tree}/. %{{buildroot}}/

%files
{files}

# what removes the old version runs after %post, so what is compiled for the new one is compiled after it
%posttrans
/{home}/bin/python3 -m compileall -q /{home}/lib || :
if [ -d /run/systemd/system ]; then systemctl daemon-reload || :; fi

%preun
if [ $1 -eq 0 ] && [ -d /run/systemd/system ]; then systemctl disable --now virtune-serve.service || :; fi
find /{home}/lib -name __pycache__ -type d -prune -exec rm -rf {{}} + || :
"""


def main() -> None:
    """Write the package into DIRECTORY (`dist`), and say its name."""
    version = next(iter(sys.argv[1:]), "3.12")
    interpreter, machine = f"python{version}", platform.machine()
    wheel, place = source_and_place(sys.argv[2:], f"_{machine}.whl", "make release")
    zsh = "usr/share/zsh/site-functions"
    with laid_out(wheel, version=version, interpreter=interpreter, defaults=OPTIONS, zsh=zsh) as tree:
        write(tree / LICENCE, (ROOT / "LICENSE").read_text())
        spec = tree.parent / "virtune.spec"
        spec.write_text(_spec(tree, interpreter))
        name = f"virtune-{version_before_release()}-1.{interpreter}.{machine}.rpm"
        defined = {"_topdir": f"{tree.parent}/build", "_rpmdir": str(place), "_rpmfilename": name}
        words = [word for key, value in defined.items() for word in ("--define", f"{key} {value}")]
        environment = os.environ | {"SOURCE_DATE_EPOCH": commit_time()}
        subprocess.run(
            ["rpmbuild", "--quiet", "-bb", "--target", machine, *words, str(spec)], check=True, env=environment
        )
    sys.stdout.write(f"{place / name}\n")


def _spec(tree: Path, interpreter: str) -> str:
    """Write the spec file: each file by its name, and the directories that are the package's own."""
    files = [f"/{HOME}", f"%dir /{Path(LICENCE).parent}", f"%license /{LICENCE}", f"%config(noreplace) /{OPTIONS}"]
    named = {LICENCE, OPTIONS}
    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        if (path.is_symlink() or path.is_file()) and name not in named and not name.startswith(f"{HOME}/"):
            files.append(f"/{name}")
    return SPEC.format(
        version=version_before_release(),
        summary=SUMMARY,
        description=DESCRIPTION,
        interpreter=interpreter,
        home=HOME,
        tree=tree,
        files="\n".join(files),
    )


if __name__ == "__main__":
    main()
