# SPDX-License-Identifier: Apache-2.0
"""`virtune show export`: measurements as CSV or Parquet, a bundle of a study, figures for Prometheus."""

import contextlib
import os
import pwd
import socket
import sys
import tempfile
from pathlib import Path

import click

from virtune.cli.common.options import require_store, store_option
from virtune.model.errors import PreconditionError, StorePlace, UsageError
from virtune.model.text import printable

TEXTFILE = "virtune.prom"


@click.command(name="export")
@click.argument("study", default="last")
@click.option("--csv", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE",
              help="Write every measured value to this new file instead of stdout.")  # fmt: skip
@click.option("--parquet", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE",
              help="Write the same as a new Parquet file, with types.")  # fmt: skip
@click.option("--bundle", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE.zip",
              help="Write result, measurements, facts, raw captures and report to this new file; to stdout without "
                   "report for `-`. It names this host, its paths and VMs, unless --anonymous is given.")  # fmt: skip
@click.option("--anonymous", is_flag=True,
              help="Replace names in every file of the bundle: hosts, users, VMs, paths, volumes, serial numbers, "
                   "UUIDs, MAC and IP addresses. The same name gets the same word everywhere.")  # fmt: skip
@click.option("--hide", multiple=True, metavar="NAME",
              help="With --anonymous: a further name to replace, such as that of a company. Repeatable.")  # fmt: skip
@click.option("--textfile", metavar="DIR", default=None, type=click.Path(path_type=Path, exists=True),
              help=f"Write the store's figures to DIR/{TEXTFILE} for Prometheus' node_exporter.")  # fmt: skip
@store_option
def export(study: str, *, csv: Path | None, parquet: Path | None, bundle: Path | None, anonymous: bool,
            hide: tuple[str, ...], textfile: Path | None, store: StorePlace) -> None:  # fmt: skip
    """Export STUDY (an id, the beginning of one, or `last`) for other programs; CSV to stdout by default.

    One row for each attempt and metric, in base units (ns, bytes, 1/s, CPU seconds per I/O).

    \b
    Examples:
      virtune show export > measurements.csv
      virtune show export last --parquet measurements.parquet
      virtune show export 20261122 --bundle study.zip
      virtune show export last --bundle study.zip --anonymous --hide example-corp
      virtune show export --textfile /var/lib/prometheus/node-exporter
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.flows.reports import export
    from virtune.store.store import Store

    if sum(one is not None for one in (csv, parquet, bundle, textfile)) > 1:
        raise UsageError("one of --csv, --parquet, --bundle and --textfile at a time")
    if (anonymous and bundle is None) or (hide and not anonymous):
        raise UsageError("--anonymous goes with --bundle, and --hide with --anonymous")
    require_store(store, study)
    with Store(store, reading=True) as kept:
        if textfile is not None:
            from virtune.flows.reports.metrics import exposition

            _replace(textfile / TEXTFILE, exposition(kept)[0])
            return
        name = kept.find(study)
        if bundle is not None and anonymous:
            names = [*_own_names(), *(("name", one) for one in hide)]
            with export.anonymous_copy(kept, name, names) as (copy, left):
                _create(bundle, export.bundle(copy, name, pages=_can_draw()))
            _warn(left)
        elif bundle == Path("-"):
            sys.stdout.buffer.write(export.bundle(kept, name, pages=False))
        elif bundle is not None:
            _create(bundle, export.bundle(kept, name, pages=_can_draw()))
        elif parquet is not None:
            _create(parquet, export.measurements_parquet(kept, name))
        elif csv is not None:
            _create(csv, export.measurements_csv(kept, name).encode())
        else:
            click.echo(export.measurements_csv(kept, name), nl=False)


def _own_names() -> list[tuple[str, str]]:
    """Return the names of this host and this user, which evidence may hold without saying what they are."""
    host = socket.gethostname()
    names = [("host", host), ("host", host.partition(".")[0])]
    with contextlib.suppress(KeyError):
        names.append(("user", pwd.getpwuid(os.getuid()).pw_name))
    return names


def _warn(left: list[str]) -> None:
    """Say which names may be left as words."""
    click.echo(
        "names are recognised by their place and form: look through the bundle before you give it away", err=True
    )
    if left:
        words = ", ".join(repr(printable(one, most=40)) for one in left[:8])
        click.echo(f"replaced only where they stand as names, since virtune uses the words too: {words}", err=True)


def _can_draw() -> bool:
    from virtune.flows.reports.report import require_libraries
    from virtune.model.errors import MissingToolError

    try:
        require_libraries()
    except MissingToolError as error:
        click.echo(f"without the report: {error.message}", err=True)
        return False
    return True


def _create(path: Path, content: bytes) -> None:
    """Write a new file; one that is there is left as it is."""
    try:
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError:
        raise UsageError(f"{path} exists", hint="choose another name, or remove it") from None
    except OSError as error:
        raise PreconditionError(f"cannot write {path}: {error.strerror}") from None
    click.echo(str(path), err=True)


def _replace(path: Path, content: bytes) -> None:
    """Replace a file at once, so that its reader sees the old or the new one whole."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)  # the exporter is another user's
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(name).replace(path)
    except OSError as error:
        raise PreconditionError(f"cannot write {path}: {error.strerror}") from None
