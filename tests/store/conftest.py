# SPDX-License-Identifier: Apache-2.0
"""One PostgreSQL server for all tests of stores."""

from collections.abc import Iterator

import pytest
from tests.postgres import Server, server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server of the tests' own."""
    with server() as found:
        yield found
