# SPDX-License-Identifier: Apache-2.0
"""`virtune serve`: the stored studies as a read-only local page."""

import contextlib
import os
import re
import secrets
import socket
from pathlib import Path

import click

from virtune.cli.common.options import require_store, store_option
from virtune.model.errors import PreconditionError, StorePlace
from virtune.shell import require_modules

HOST = "127.0.0.1"
"""Other machines have no access."""

_TOKEN_BYTES = 32

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,200}")


@click.command(name="serve")
@click.option("--port", type=click.IntRange(0, 65535), default=8787, show_default=True, help="0: any free port.")
@click.option(
    "--token-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Take the token from this file, made for you alone where it is missing.  [default: a new token each time]",
)  # fmt: skip
@store_option
def serve(port: int, token_file: Path | None, store: StorePlace) -> None:
    """Show the stored studies in a browser, at the address that is printed, until Ctrl-C.

    Studies with filters, each one's report, two side by side, runs while they run (a fleet's too, host by host), the
    host over time, and /metrics for Prometheus. The page changes nothing, answers this machine only and fetches
    nothing from elsewhere; only the page of a run has a script, to follow it. From another machine:
    `ssh -L 8787:127.0.0.1:8787 HOST`.

    The address has a token, so that other users of this machine read nothing; the browser keeps it in a cookie.
    Prometheus sends it as `Authorization: Bearer TOKEN` (`credentials_file: FILE` with --token-file FILE).

    \b
    Examples:
      virtune serve
      virtune serve --port 9000 --store results.sqlite
      virtune serve --token-file ~/.config/virtune-token
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    require_modules("starlette", "uvicorn", "jinja2", "prometheus_client", "vl_convert")
    import uvicorn

    from virtune.web.app import application

    require_store(store, "last")
    token = secrets.token_urlsafe(_TOKEN_BYTES) if token_file is None else token_of(token_file)
    with listening_on(port) as listening:
        click.echo(f"http://{HOST}:{listening.getsockname()[1]}/?token={token}", err=True)
        server: uvicorn.Server
        page = application(
            store, token=token, ending=lambda: server.should_exit
        )  # or an open page of a run would hold it
        server = uvicorn.Server(uvicorn.Config(page, log_level="warning", access_log=False, server_header=False))
        server.run(sockets=[listening])


def token_of(path: Path) -> str:
    """Return the token in a file, which is made where it is missing. Raises PreconditionError for a file that others
    may read, or that holds no token.
    """
    with contextlib.suppress(FileExistsError):
        made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(made, "w") as file:
            file.write(secrets.token_urlsafe(_TOKEN_BYTES) + "\n")
    with path.open() as file:
        token = file.read(1024).strip()
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise PreconditionError(f"others may read the token in {path}", hint=f"`chmod 600 {path}`")
    if not _TOKEN.fullmatch(token):
        raise PreconditionError(
            f"{path} holds no token: at least 16 letters, digits, - and _", hint="a file that is missing is made"
        )
    return token


def listening_on(port: int) -> socket.socket:
    """Return a socket that takes connections, so that its address can be told before there is an answer.

    Raises PreconditionError where another program has the port.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()
    except OSError as error:
        listening.close()
        hint = "`--port 0` takes any free one"
        raise PreconditionError(f"cannot listen on {HOST}:{port}: {error.strerror}", hint=hint) from None
    return listening
