#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Say how far a study on a host is, or wait for its end."""

DOCUMENTATION = """
module: study_info
short_description: Say how far a study of virtune on a host is, or wait for its end
description:
  - To wait costs the host one sleeping Python. A connection that breaks meanwhile ends the task and not the study.
options:
  name:
    description: The name of the task.
    type: str
    required: true
  wait:
    description: Return when it no longer runs, and fail where it ended badly or hangs.
    type: bool
    default: false
  virtune:
    description: The virtune of the host.
    type: str
    default: virtune
attributes:
  check_mode:
    support: full
author:
  - the virtune authors
"""

EXAMPLES = """
- name: Wait for it
  virtune.fleet.study_info:
    name: aio-2026-11
    wait: true
"""

RETURN = """
study:
  description: How far it is, with keys state, study (its id), done, total, left_seconds, verdict, code, said.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.virtune.fleet.plugins.module_utils.here import ENDED_BADLY, asked


def main():
    """Ask once, or follow it."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "wait": {"type": "bool", "default": False},
            "virtune": {"type": "str", "default": "virtune"},
        },
        supports_check_mode=True,
    )
    wait = module.params["wait"]
    found = asked(module, module.params["name"], *(["--follow"] if wait else []))
    if wait and found["state"] in ENDED_BADLY:
        module.fail_json(msg=f"{found['state']}: {found['said'] or 'it gave no reason'}", study=found)
    module.exit_json(changed=False, study=found)


if __name__ == "__main__":
    main()
