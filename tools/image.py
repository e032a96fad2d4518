# SPDX-License-Identifier: Apache-2.0
"""Build an OCI image of the Debian package, without a daemon: mmdebstrap makes its root, umoci lays it out.

    python -m tools.image [PACKAGE] [DIRECTORY]

The image is an archive that `podman load --input FILE` and `skopeo copy oci-archive:FILE ...` read. It has the
distribution that this host has, since the package is for its Python.
"""

import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import virtune
from tools.release import commit_time
from tools.tree import SUMMARY, pack, source_and_place

RECOMMENDED = ("qemu-system-x86", "busybox-static", "ca-certificates")
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
STORE = "/root/.local/share/virtune"


def main() -> None:
    """Write the image into DIRECTORY (`dist`), and say its name."""
    package, place = source_and_place(sys.argv[1:], ".deb", "make deb")
    with tempfile.TemporaryDirectory(prefix="virtune-image-", dir="/var/tmp") as named:
        layer, layout = Path(named) / "layer.tar", Path(named) / "layout"
        _layer(package, layer)
        _describe(layer, layout)
        pack(layout, place / f"virtune-{virtune.__version__}-{platform.machine()}.oci.tar")


def _layer(package: Path, layer: Path) -> None:
    """Make the root: what the package depends on, then the package itself, which needs no network any more."""
    asked = subprocess.run(["dpkg-deb", "-f", str(package), "Depends"], check=True, capture_output=True, text=True)
    needed = [re.split(r"[ (|]", word.strip())[0] for word in asked.stdout.split(",")]
    rules = [f"path-exclude={path}" for path in LEFT_OUT] + ["path-include=/usr/share/doc/*/copyright"]
    inside = "/virtune.deb"
    hooks = [
        f'cp {package} "$1{inside}"',
        f'chroot "$1" dpkg --install {inside}',
        f'rm "$1{inside}"',
        'rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*.bin "$1"/var/log/*.log "$1"/var/log/apt',
    ]
    subprocess.run(
        [
            "mmdebstrap", "-q", "--variant=minbase", f"--include={','.join(sorted({*needed, *RECOMMENDED}))}",
            *(f"--dpkgopt={rule}" for rule in rules),
            *(f"--customize-hook={hook}" for hook in hooks),
            platform.freedesktop_os_release()["VERSION_CODENAME"], str(layer),
        ],
        check=True,
        env=os.environ | {"SOURCE_DATE_EPOCH": commit_time()},
    )  # fmt: skip


def _describe(layer: Path, layout: Path) -> None:
    """Lay out the image of one layer, and say what it runs and keeps."""
    tag = f"{layout}:{virtune.__version__}"
    when = datetime.datetime.fromtimestamp(int(commit_time()), datetime.UTC).isoformat()
    said = {
        "--config.entrypoint": "virtune",
        "--config.cmd": "--help",
        "--config.env": "LANG=C.UTF-8",
        "--config.volume": STORE,
        "--config.workingdir": "/root",
        "--config.label": f"org.opencontainers.image.description={SUMMARY}",
        "--created": when,
        "--history.created": when,
    }
    subprocess.run(["umoci", "init", "--layout", str(layout)], check=True)
    subprocess.run(["umoci", "new", "--image", tag], check=True)
    subprocess.run(["umoci", "raw", "add-layer", "--image", tag, str(layer)], check=True)
    words = [word for key, value in said.items() for word in (key, value)]
    subprocess.run(["umoci", "config", "--image", tag, *words], check=True)
    subprocess.run(["umoci", "gc", "--layout", str(layout)], check=True)
    index = json.loads((layout / "index.json").read_text())
    # podman names an image by this; umoci takes a tag alone
    index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"] = f"virtune:{virtune.__version__}"
    (layout / "index.json").write_text(json.dumps(index))


if __name__ == "__main__":
    main()
