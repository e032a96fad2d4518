# SPDX-License-Identifier: Apache-2.0
"""Try whether a test guest runs on KVM here: exit code 0 if it does, else 1 and a sentence why not.

`tools/demo` asks it by `python -m tools.vm_under_kvm`.
"""

import os
import sys

from virtune.bench.qemu.bare import KVM_SECONDS, find_guest
from virtune.bench.qemu.rig import BareSession
from virtune.model.errors import VirtuneError
from virtune.shell import Warden


def main() -> int:
    try:
        with Warden(f"demo-{os.getpid()}") as warden:
            found = BareSession(find_guest(), warden).accelerator_for(None)
    except VirtuneError as error:
        why = f"{error.message}" + (f" ({error.hint})" if error.hint else "")
    else:
        if found.kvm:
            sys.stdout.write(f"a VM is one of the arms: {found.why}\n")
            return 0
        why = f"{found.why}, tried for at most {KVM_SECONDS:g} s" if found.tried else found.why
    sys.stderr.write(f"no VM is among the arms: {why}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
