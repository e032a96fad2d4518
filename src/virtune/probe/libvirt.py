# SPDX-License-Identifier: Apache-2.0
"""libvirt: the versions of its client and its daemon. No connection is made."""

import re

from virtune import shell
from virtune.model.errors import MissingToolError, VirtuneError
from virtune.model.facts import LibvirtFacts, Program, Unknown
from virtune.probe.about import said_of_itself

_NUMBER = re.compile(r"\d+(?:\.\d+)+")


def libvirt_facts() -> LibvirtFacts:
    """Return the libvirt programs of this host; the QEMU driver's own daemon before the old monolithic one."""
    daemons = [_program(name) for name in ("virtqemud", "libvirtd")]
    return LibvirtFacts(
        client=_program("virsh"), daemon=next((one for one in daemons if isinstance(one, Program)), daemons[-1])
    )


def _program(name: str) -> Program | Unknown:
    try:
        path = shell.find(name)
        text = said_of_itself(path, "--version")
    except MissingToolError:
        return Unknown("not installed")
    except VirtuneError as error:
        return Unknown(error.message)
    version = _NUMBER.search(text)
    return Program(
        name=name,
        path=path,
        version=version[0] if version else Unknown(f"its version was not understood: {text[:60]!r}"),
        package=Unknown("libvirt names no package"),
    )
