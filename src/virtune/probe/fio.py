# SPDX-License-Identifier: Apache-2.0
"""fio: its version and its I/O engines."""

from virtune import shell
from virtune.model.errors import MissingToolError, VirtuneError
from virtune.model.facts import FioFacts, Program, Unknown
from virtune.probe.about import said_of_itself


def fio_facts() -> FioFacts:
    """Return the fio of this host."""
    try:
        path = shell.find("fio")
    except MissingToolError:
        return FioFacts(program=Unknown("not installed"), engines=Unknown("not installed"))
    try:
        banner = said_of_itself(path, "--version").strip()
        engines = read_engines(said_of_itself(path, "--enghelp"))
    except VirtuneError as error:
        return FioFacts(program=Unknown(error.message), engines=Unknown(error.message))
    found = Program(
        name="fio", path=path, version=banner.removeprefix("fio-"), package=Unknown("fio names no package")
    )
    return FioFacts(program=found, engines=engines or Unknown("`fio --enghelp` lists none"))


def read_engines(text: str) -> tuple[str, ...]:
    """Read the names from `fio --enghelp`: a headline, then one a line, perhaps with a note in brackets."""
    return tuple(line.split()[0] for line in text.splitlines()[1:] if line.strip())
