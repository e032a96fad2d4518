# SPDX-License-Identifier: Apache-2.0
"""What an open page of a run is sent."""

import contextlib
import http.client
from collections.abc import Iterator

from tests.web.pages import Page


class Stream:
    """An open stream of a run's page."""

    def __init__(self, page: Page, study: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
        self._connection.request("GET", f"/live/{study}/events?token={page.token}")
        self.answer = self._connection.getresponse()

    def event(self) -> tuple[str, str]:
        """Return the next event's name and its data."""
        name, data = "", list[str]()
        for line in iter(lambda: self.answer.readline().decode().rstrip("\n"), ""):
            field, _, value = line.partition(": ")
            name, data = (value, data) if field == "event" else (name, [*data, value])
        return name, "\n".join(data)

    def close(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def following(page: Page, study: str) -> Iterator[Stream]:
    with contextlib.closing(Stream(page, study)) as stream:
        yield stream
