# SPDX-License-Identifier: Apache-2.0
"""The sections of a job file."""

from virtune.fio.job import FioJob


def sections(job: FioJob) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for line in job.text.splitlines():
        if line.startswith("["):
            found[line[1:-1]] = {}
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            list(found.values())[-1][key] = value
    return found
