# SPDX-License-Identifier: Apache-2.0
"""KVM: tested by creating an empty VM. That does not prove that a guest boots, and is not reported as such."""

import fcntl
import os
from pathlib import Path

from virtune.model.facts import KvmFacts, Unknown
from virtune.probe import tree
from virtune.probe.kernel import RECORDED

_GET_API_VERSION = 0xAE00
_CREATE_VM = 0xAE01


NOT_TRIED = Unknown("not tried: `virtune appliance build` does")


def kvm_facts(root: Path = tree.ROOT) -> KvmFacts:
    """Return the results of testing KVM."""
    exists = tree.exists("/dev/kvm", root)
    opens, version, creates = _try() if root == tree.ROOT else (RECORDED, RECORDED, RECORDED)
    return KvmFacts(
        exists=exists,
        opens=opens,
        api_version=version,
        creates_vm=creates,
        nested=_nested(root),
        boots_guest=NOT_TRIED,
        boot=NOT_TRIED,
        halt_poll_ns=tree.number("/sys/module/kvm/parameters/halt_poll_ns", root),
    )


def _try() -> tuple[bool | Unknown, int | Unknown, bool | Unknown]:
    try:
        device = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        absent = Unknown("there is no /dev/kvm")
        return absent, absent, absent
    except OSError as error:
        closed = Unknown(f"/dev/kvm does not open: {_words(error)}")
        return False, closed, closed
    try:
        return True, _ask(device, _GET_API_VERSION), _create(device)
    finally:
        os.close(device)


def _ask(device: int, request: int) -> int | Unknown:
    try:
        return fcntl.ioctl(device, request, 0)
    except OSError as error:
        return Unknown(f"/dev/kvm does not answer: {_words(error)}")


def _create(device: int) -> bool | Unknown:
    made = _ask(device, _CREATE_VM)
    if isinstance(made, Unknown):
        return False
    os.close(made)
    return True


def _nested(root: Path) -> bool | Unknown:
    for module in ("kvm_intel", "kvm_amd"):
        text = tree.text(f"/sys/module/{module}/parameters/nested", root)
        if not isinstance(text, Unknown):
            return text in ("1", "Y")
    return Unknown("neither kvm_intel nor kvm_amd shows it")


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
