# SPDX-License-Identifier: Apache-2.0
"""`virtune-demo`: virtune's main job, for real, on this host.

The host's disk against QEMU's three ways of asynchronous I/O, and against a VM where KVM runs one. Further arguments
go to `virtune compare`. `virtune-demo --vm` only tries whether a test guest runs on KVM here.
"""

import os
import sys

from virtune.bench.qemu.load import KVM_SECONDS, find_guest
from virtune.bench.qemu.rig import BareSession
from virtune.cli import run
from virtune.cli.common.surroundings import prepare
from virtune.model.errors import MissingToolError, VirtuneError
from virtune.shell import Warden, find_generator

_PAGE = "virtune-report.html"
_VM = ("--arm", "vm:rig=qemu,guest.system=bare,device.iothread=io1,disk.aio=native")
"""A VM that is nothing but the load, loaded by the same program."""


def main() -> int:
    """Compare, then write the report with its pictures: a file that needs no network and no script."""
    prepare(debug=False)
    if {"-h", "--help"} & {*sys.argv[1:]}:
        sys.stdout.write(f"{__doc__}\n`virtune compare --help` lists the arguments, as `--scratch DIR`.\n")
        return 0
    _say(f"trying whether KVM runs a test guest here, for at most {KVM_SECONDS:g} s...")
    vm, why = _vm()
    _say(why)
    if sys.argv[1:] == ["--vm"]:
        return 0 if vm else 1
    rig = _rig()
    arms = [f"qemu-{aio}:rig={rig},disk.aio={aio}" for aio in ("threads", "native", "io_uring")]
    words = [word for arm in ("host-file:rig=metal", *arms) for word in ("--arm", arm)]
    words += [*vm, "--baseline", "host-file", "--workload", "randread-4k", "--budget", "150s", "--seconds", "2s"]
    _say("writing to the disk what is still in memory, so that it is not written while we measure...")
    os.sync()  # what an installation wrote is not to be written while we measure
    code = run(["compare", *words, "--report", "virtune-report.txt", *sys.argv[1:]])
    if code == 0:
        _say(f"drawing {_PAGE}...")
    return code or run(["show", "report", "last", "-o", _PAGE])


def _say(words: str) -> None:
    sys.stderr.write(f"{words}\n")


def _rig() -> str:
    """With our load generator QEMU's disks are loaded as a guest's virtio queues load them, without it over NBD."""
    try:
        find_generator()
    except MissingToolError:
        return "storage-daemon"
    return "vhost-user"


def _vm() -> tuple[tuple[str, ...], str]:
    """Try whether KVM runs a test guest: the words of its arm, if so, and a sentence."""
    try:
        with Warden(f"demo-{os.getpid()}") as warden:
            found = BareSession(find_guest(), warden).accelerator_for(None)
    except VirtuneError as error:
        why = f"{error.message}" + (f" ({error.hint})" if error.hint else "")
    else:
        if found.kvm:
            return _VM, f"a VM is one of the arms: {found.why}"
        why = f"{found.why}, tried for at most {KVM_SECONDS:g} s" if found.tried else found.why
    return (), f"no VM is among the arms: {why}"
