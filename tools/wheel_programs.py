# SPDX-License-Identifier: Apache-2.0
"""Puts the Ansible collection into the wheel, beside the modules, and builds the Rust programs into it:
`virtune-load` beside `virtune`, `virtune-guest` below `share/virtune`.

hatchling calls it (pyproject.toml). Both programs are linked statically, so that one wheel runs on every Linux of its
architecture. Without cargo the wheel is one of Python only; `VIRTUNE_PROGRAMS=required` makes that an error. Their
crates are written down as a CycloneDX bill of materials (PEP 770), with the texts of their licences.

`VIRTUNE_MACHINE=aarch64` builds for another architecture than this host's, by the compiler that Debian names after
it. The guest is a PC, so it is in the wheel of x86_64 only.
"""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_TEXTS = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE")
"""How the names of files with a licence begin."""

PACKAGES = ("virtune-load", "virtune-guest")


class Programs(BuildHookInterface[Any]):
    """Adds the collection and what cargo builds to a wheel that is not editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the collection in `build_data`, build both programs, and name them, their crates and licences."""
        required = os.environ.get("VIRTUNE_PROGRAMS") == "required"
        if version == "editable":
            return
        root, machine = Path(self.root), os.environ.get("VIRTUNE_MACHINE") or platform.machine()
        build_data["force_include"][str(root / "ansible")] = "virtune/ansible"
        if shutil.which("cargo") is None and not required:
            return
        place = root / "build"
        try:
            load, guest = _built(root / "loadgen", place / "loadgen", machine)
        except (OSError, subprocess.CalledProcessError) as error:
            if required:
                raise
            self.app.display_warning(f"virtune-load and virtune-guest could not be built, and are left out: {error}")
            return
        crates = _crates(root / "loadgen", machine)
        (place / "crates.cdx.json").write_text(json.dumps(_bill(crates), indent=1, sort_keys=True) + "\n")
        (place / "LICENSES-CRATES.txt").write_text(_licences(crates))
        build_data["shared_scripts"][str(load)] = load.name
        if guest is not None:
            build_data["shared_data"][str(guest)] = f"share/virtune/{guest.name}"
        build_data["sbom_files"].append(str(place / "crates.cdx.json"))
        build_data["extra_metadata"][str(place / "LICENSES-CRATES.txt")] = "LICENSES-CRATES.txt"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux2014_{machine}.manylinux_2_17_{machine}"


def _built(sources: Path, target: Path, machine: str) -> tuple[Path, Path | None]:
    """Build the load generator, and the guest for a PC, with no symbols and no path of this machine in them."""
    home = os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))
    kept = [f"--remap-path-prefix={home}=/cargo", f"--remap-path-prefix={sources}=/loadgen"]
    triple = f"{machine}-unknown-linux-gnu"
    environment = os.environ | {"CARGO_PROFILE_RELEASE_STRIP": "symbols", "CARGO_PROFILE_RELEASE_DEBUG": "0"}
    if machine != platform.machine():
        linker = f"CARGO_TARGET_{triple.upper().replace('-', '_')}_LINKER"
        environment.setdefault(linker, f"{machine}-linux-gnu-gcc")
    words = [
        "--locked",
        "--manifest-path",
        str(sources / "Cargo.toml"),
        "--target-dir",
        str(target),
        "--target",
        triple,
    ]

    def cargo(*command: str, flags: Sequence[str]) -> None:
        subprocess.run(
            ["cargo", *command],
            check=True,
            env=environment | {"CARGO_ENCODED_RUSTFLAGS": "\x1f".join([*kept, *flags])},
        )

    cargo("build", "-q", "--release", *words, flags=["-Ctarget-feature=+crt-static"])
    load = target / triple / "release" / "virtune-load"
    if machine != "x86_64":
        return load, None
    cargo(
        "rustc", "-q", "--profile", "guest", "--package", "virtune-guest", *words, flags=["-Crelocation-model=static"]
    )
    return load, target / triple / "guest" / "virtune-guest"


def _crates(sources: Path, machine: str) -> list[Mapping[str, Any]]:
    """Return the crates that are linked into the programs, in order: none that only tests or builds need."""
    command = [
        "cargo",
        "metadata",
        "-q",
        "--locked",
        "--format-version",
        "1",
        "--manifest-path",
        str(sources / "Cargo.toml"),
    ]
    told = subprocess.run(
        [*command, "--filter-platform", f"{machine}-unknown-linux-gnu"], check=True, capture_output=True, text=True
    )
    graph = json.loads(told.stdout)
    packages = {one["id"]: one for one in graph["packages"]}
    nodes = {one["id"]: one for one in graph["resolve"]["nodes"]}
    programs = PACKAGES if machine == "x86_64" else PACKAGES[:1]
    reached, waiting = set[str](), [one for one in nodes if packages[one]["name"] in programs]
    while waiting:
        crate = waiting.pop()
        if crate not in reached:
            reached.add(crate)
            macro = any("proc-macro" in target["kind"] for target in packages[crate]["targets"])
            needs = [] if macro else nodes[crate]["deps"]
            waiting += [one["pkg"] for one in needs if any(kind["kind"] is None for kind in one["dep_kinds"])]
    return sorted((packages[one] for one in reached), key=lambda one: (one["name"], one["version"]))


def _bill(crates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the CycloneDX 1.6 document of the crates; nothing in it changes from build to build."""
    components = [
        {
            "type": "library", "name": one["name"], "version": one["version"],
            "purl": f"pkg:cargo/{one['name']}@{one['version']}", "bom-ref": f"{one['name']}@{one['version']}",
            "licenses": [{"expression": (one["license"] or "NOASSERTION").replace("/", " OR ")}],
        }
        for one in crates
    ]  # fmt: skip
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": components}


def _licences(crates: Sequence[Mapping[str, Any]]) -> str:
    """Return the licence texts of the crates of others, each text once, above it the crates that carry it."""
    carried: dict[str, list[str]] = {}
    for one in crates:
        if not one["source"]:
            continue
        place = Path(one["manifest_path"]).parent
        files = [file for file in sorted(place.glob("*")) if file.is_file() and file.name.upper().startswith(_TEXTS)]
        bare = f"{one['license']}, by {', '.join(one['authors']) or one['repository']}; its archive has no text of it"
        for text in [file.read_text(errors="replace").strip() for file in files] or [bare]:
            carried.setdefault(text, []).append(f"{one['name']} {one['version']}")
    rule = "\n" + "=" * 80 + "\n"
    return rule.join(f"{', '.join(names)}\n\n{text}\n" for text, names in carried.items())
