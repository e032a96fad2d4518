# SPDX-License-Identifier: Apache-2.0
"""What virtune's errors make of its exit status: it is documented, and scripts rely on it."""

import pytest

from virtune.model import errors


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.VirtuneError, 1),
        (errors.RigError, 1),
        (errors.LoadError, 1),
        (errors.StoreError, 1),
        (errors.UsageError, 2),
        (errors.PlanError, 2),
        (errors.ReadError, 2),
        (errors.PreconditionError, 3),
        (errors.MissingToolError, 3),
        (errors.RefusedTargetError, 3),
        (errors.NotInForceError, 3),
        (errors.Interrupted, 130),
    ],
)
def test_each_error_ends_virtune_with_its_status(kind: type[errors.VirtuneError], status: int) -> None:
    assert kind("a sentence").exit_code == status
