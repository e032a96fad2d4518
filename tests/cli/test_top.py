# SPDX-License-Identifier: Apache-2.0
"""`virtune top` as a user calls it."""

import pytest
from tests.conftest import User


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("--once", "--interval", "100ms"), 2, "--interval is at least 0.2s"),
        (("--json",), 2, "--json needs --once"),
        (("--once", "--qmp", "/nowhere/vm.qmp"), 3, "no QEMU answers at /nowhere/vm.qmp"),
        (("--once", "--connect", "qemu+ssh://elsewhere.invalid/system"), 3, "libvirt"),
        (("--once", "--connect", "test:///default"), 3, "is not the libvirt of QEMU on this host"),
    ],
)
def test_what_cannot_be_watched_is_said_in_a_sentence(
    user: User, words: tuple[str, ...], status: int, says: str
) -> None:
    assert says in user.run("top", *words, status=status).stderr
