# SPDX-License-Identifier: Apache-2.0
"""A served store, asked for its pages."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from virtune.web.app import application

TOKEN = "a-token-of-these-tests"  # noqa: S105 - of no server but theirs

HOSTILE = "<script>alert(1)</script>\"'\x1b[31m{{7*7}}"


class Page:
    """A running page, and how to ask it."""

    def __init__(self, port: int, store: Path, token: str = TOKEN) -> None:
        self.port, self.store, self.token = port, store, token

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        named = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text, {name.lower(): value for name, value in answer.getheaders()}


@contextlib.contextmanager
def served(store: Path) -> Iterator[Page]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(application(store, token=TOKEN), log_level="error", access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Page(port, store)
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()
