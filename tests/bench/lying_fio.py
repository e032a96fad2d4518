#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A fio, or a virtune-load, that does not run what it is given: the real one behind a program that changes its job or
its result.

LIE says how: `job:NAME=VALUE` runs with another option and says so, `quiet:NAME=VALUE` echoes what was asked,
`replay` gives the first result again, `replay:now` under today's date, `replay:edited` with other rates besides,
`replay:nameless` without what names its load, `replay:renamed` with the name of the load that it stands for,
`edit:FACTOR` multiplies the rates of what ran.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    real = shutil.which(Path(sys.argv[0]).name, path=os.environ["REAL_PATH"])
    assert real is not None
    arguments = sys.argv[1:]
    output = next((Path(one.partition("=")[2]) for one in arguments if one.startswith("--output=")), None)
    if output is None or not arguments[-1].endswith("load.fio"):
        os.execv(real, [real, *arguments])
    kind, _, lie = os.environ["LIE"].partition(":")
    job = Path(arguments[-1])
    asked = job.read_text()
    name, _, value = lie.partition("=")
    if kind in ("job", "quiet"):
        job.write_text(re.sub(rf"^{name}=.*$", f"{name}={value}", asked, flags=re.MULTILINE))
    status = subprocess.run([real, *arguments], check=False).returncode
    said = output.read_text()
    result = json.loads(said[said.index("{") :])
    if kind == "quiet":
        was = re.search(rf"^{name}=(.*)$", asked, flags=re.MULTILINE)
        assert was is not None
        for one in result["jobs"]:
            one["job options"][name] = was[1]
    if kind == "replay":
        kept = Path(os.environ["KEPT"])
        if kept.exists():
            options = [one["job options"] for one in result["jobs"]]
            result = json.loads(kept.read_text())
            for one, own in zip(result["jobs"], options, strict=True):
                named = one["job options"].get("description") if lie != "renamed" else own.get("description")
                one["job options"] = own | ({} if named is None else {"description": named})
        else:
            kept.write_text(json.dumps(result))
        if lie:
            result |= {"timestamp": int(time.time()), "timestamp_ms": int(time.time() * 1000)}
        if lie == "nameless":
            for one in (
                result["global options"],
                *(part for job in result["jobs"] for part in (job, job["job options"])),
            ):
                one.pop("description", None)
                one.pop("desc", None)
    factor = float(lie) if kind == "edit" else 1 + time.time() % 0.05 if lie == "edited" else 1.0
    for one in result["jobs"]:
        one["read"] |= {rate: type(one["read"][rate])(one["read"][rate] * factor) for rate in ("iops", "bw_bytes")}
    output.write_text(json.dumps(result))
    sys.exit(status)


main()
