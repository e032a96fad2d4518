# SPDX-License-Identifier: Apache-2.0
"""How both modules ask the virtune of their host: `virtune fleet here TASK`, whose answer is a line of JSON."""

import json

GOES_ON = ("running", "stuck")
"""States of a study that has not ended."""

ENDED_BADLY = ("failed", "killed", "stuck")


def asked(module, *words):
    """Return what the virtune of this host says of the task, or fail with its reason."""
    command = [module.params["virtune"], "fleet", "here", *words]
    status, out, err = module.run_command(command)
    said = [line[len("error: ") :] for line in err.splitlines() if line.startswith("error: ")]
    if status:
        module.fail_json(msg=said[-1] if said else f"virtune ended with {status}: {err.strip()[-300:]}")
    try:
        found = json.loads(out.strip().splitlines()[-1])
        return {
            key: found[key] for key in ("state", "study", "done", "total", "left_seconds", "verdict", "code", "said")
        }
    except (ValueError, LookupError, TypeError):
        module.fail_json(msg="what virtune said of the study is not to be understood: another version of it?")
