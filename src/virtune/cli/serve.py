# SPDX-License-Identifier: Apache-2.0
"""`virtune serve`: the stored studies as a read-only local page."""

import importlib.util
import socket

import click

from virtune.cli.common.options import require_store, store_option
from virtune.model.errors import MissingToolError, PreconditionError
from virtune.model.store_place import StorePlace

HOST = "127.0.0.1"
"""There is no login, so other machines have no access."""

_LIBRARIES = ("starlette", "uvicorn", "jinja2", "prometheus_client", "vl_convert")


@click.command(name="serve")
@click.option("--port", type=click.IntRange(0, 65535), default=8787, show_default=True, help="0: any free port.")
@store_option
def command(port: int, store: StorePlace) -> None:
    """Show the stored studies in a browser, at http://127.0.0.1:8787/ until Ctrl-C.

    Studies with filters, each one's report, two side by side, runs while they run, the host over time, and /metrics
    for Prometheus. The page changes nothing, answers this machine only and fetches nothing from elsewhere; only the
    page of a run has a script, to follow it. From another machine: `ssh -L 8787:127.0.0.1:8787 HOST`.

    \b
    Examples:
      virtune serve
      virtune serve --port 9000 --store results.sqlite
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    for name in _LIBRARIES:
        if importlib.util.find_spec(name) is None:
            raise MissingToolError(
                f"the Python package {name} is not installed, and the local page needs it",
                hint="`pip install 'virtune[serve]'`",
            )
    import uvicorn

    from virtune.web.app import application

    require_store(store, "last")
    with listening_on(port) as listening:
        click.echo(f"http://{HOST}:{listening.getsockname()[1]}/", err=True)
        server: uvicorn.Server
        page = application(store, ending=lambda: server.should_exit)  # or an open page of a run would hold it
        server = uvicorn.Server(uvicorn.Config(page, log_level="warning", access_log=False, server_header=False))
        server.run(sockets=[listening])


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
