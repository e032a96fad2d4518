#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Begin a study on a host, go on with it, or stop it."""

DOCUMENTATION = """
module: study
short_description: Begin a study of virtune on a host, go on with it, or stop it
description:
  - The study runs by itself, detached, into the host's own store. The same task begins nothing twice; a study that
    was killed is resumed without losing or repeating a finished trial.
options:
  name:
    description: The name of the task, by which the study is found again. Another study needs another name.
    type: str
    required: true
  words:
    description: "What runs: a verb of virtune that makes a study, and its options."
    type: list
    elements: str
    default: []
  state:
    description: Whether it is to run, or to be asked to stop; what is finished is kept.
    type: str
    choices: [present, stopped]
    default: present
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
- name: Is io_uring faster here?
  virtune.fleet.study:
    name: aio-2026-11
    words: [compare, --vary, "disk.aio=threads,io_uring"]
"""

RETURN = """
study:
  description: How far it is, with keys state, study (its id), done, total, left_seconds, verdict, code, said.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.virtune.fleet.plugins.module_utils.here import GOES_ON, asked


def main():
    """Compare what is with what is wanted, and do what is left."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "words": {"type": "list", "elements": "str", "default": []},
            "state": {"type": "str", "choices": ["present", "stopped"], "default": "present"},
            "virtune": {"type": "str", "default": "virtune"},
        },
        supports_check_mode=True,
    )
    task, words, stop = module.params["name"], module.params["words"], module.params["state"] == "stopped"
    if not stop and not words:
        module.fail_json(msg="words are missing: what is to run")
    before = asked(module, task)
    changed = before["state"] in (GOES_ON if stop else ("waiting", "killed"))
    if module.check_mode or (stop and not changed):
        module.exit_json(changed=changed, study=before)
    # also of one that is over: a host refuses a task of this name that ran something else
    module.exit_json(changed=changed, study=asked(module, task, *(["--stop"] if stop else ["--", *words])))


if __name__ == "__main__":
    main()
