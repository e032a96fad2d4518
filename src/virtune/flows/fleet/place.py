# SPDX-License-Identifier: Apache-2.0
"""Where the studies of a fleet are kept: one store for all hosts, or a folder with a SQLite file for each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from virtune.model.errors import PreconditionError
from virtune.model.store_place import StorePlace
from virtune.store.store import Store

SUFFIX = ".sqlite"


@dataclass(frozen=True, slots=True)
class FleetFolder:
    """A folder with a store for each host, DIR/HOST.sqlite."""

    path: Path

    def prepare(self) -> None:
        """Make the folder. Raises PreconditionError where that fails."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PreconditionError(f"cannot make {self.path}: {(error.strerror or '').lower()}") from None

    def hosts(self) -> Sequence[str]:
        """Return the hosts that have a store."""
        return [path.stem for path in sorted(self.path.glob(f"*{SUFFIX}"))]

    def finished(self, kinds: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        """Yield the host, the id and the text of every finished study of these kinds, each host's newest first."""
        for host in self.hosts():
            with self.of(host, reading=True) as store:
                yield from ((host, name, text) for _, name, text in store.finished(kinds, own=True))

    def each(self, hosts: Sequence[str]) -> Iterator[tuple[str, Store]]:
        """Yield each host with its store, open for reading."""
        for host in hosts:
            with self.of(host, reading=True) as store:
                yield host, store

    def of(self, host: str, *, reading: bool = False) -> Store:
        """Return the store of a host's studies."""
        return Store(self.place_of(host), reading=reading)

    def place_of(self, host: str) -> StorePlace:
        """Return where a host's studies are."""
        return self.path / f"{host}{SUFFIX}"

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class FleetStore:
    """One store for all hosts: each study under (host, id), since two hosts may have studies of one id."""

    place: StorePlace

    def prepare(self) -> None:
        """Make the store once, before many write to it."""
        with Store(self.place):
            pass

    def hosts(self) -> Sequence[str]:
        """Return the hosts that have studies here."""
        if not self.place.exists():
            return ()
        with Store(self.place, reading=True) as store:
            return store.hosts()

    def finished(self, kinds: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        """Yield the host, the id and the text of every finished study of these kinds, the newest first."""
        if self.place.exists():
            with Store(self.place, reading=True) as store:
                yield from (one for one in store.finished(kinds) if one[0])

    def each(self, hosts: Sequence[str]) -> Iterator[tuple[str, Store]]:
        """Yield each host with the store, open for reading, in which ids mean that host's studies."""
        with Store(self.place, reading=True) as store:
            for store.host in hosts:
                yield store.host, store

    def of(self, host: str, *, reading: bool = False) -> Store:
        """Return the store, in which ids mean a host's studies."""
        return Store(self.place, reading=reading, host=host)

    def place_of(self, host: str) -> StorePlace:  # noqa: ARG002 - all are in one
        """Return where a host's studies are."""
        return self.place

    def __str__(self) -> str:
        return str(self.place)


FleetPlace = FleetFolder | FleetStore
