# SPDX-License-Identifier: Apache-2.0
"""Where the studies of a fleet are kept: one store for all hosts, or a folder with a SQLite file for each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from virtune.model.errors import PreconditionError, StorePlace
from virtune.model.evidence import FinishedStudy
from virtune.store.store import Store

SUFFIX = ".sqlite"

Studies = Mapping[str, tuple[str, str]]
"""By the names of hosts: the host and the id by which a store finds a study."""


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

    def finished(self, kinds: Sequence[str]) -> Iterator[FinishedStudy]:
        """Yield every finished study of these kinds, each host's newest first."""
        for host in self.hosts():
            with self.of(host, reading=True) as store:
                yield from (replace(one, host=host) for one in store.finished(kinds, own=True))

    def stores(self, studies: Mapping[str, str]) -> Iterator[tuple[Store, Studies]]:
        """Yield each host's store, open for reading, with its study; `studies` are the ids by their hosts."""
        for host, study in studies.items():
            with self.of(host, reading=True) as store:
                yield store, {host: ("", study)}

    def texts(self, studies: Sequence[FinishedStudy]) -> list[str]:
        """Return the texts of studies as they are kept."""
        found = []
        for one in studies:
            with self.of(one.host, reading=True) as store:
                found.append(store.text(one.id))
        return found

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

    def finished(self, kinds: Sequence[str]) -> Iterator[FinishedStudy]:
        """Yield every finished study of these kinds that a host has, the newest first."""
        if self.place.exists():
            with Store(self.place, reading=True) as store:
                yield from (one for one in store.finished(kinds) if one.host)

    def stores(self, studies: Mapping[str, str]) -> Iterator[tuple[Store, Studies]]:
        """Yield the store, open for reading, with all studies; `studies` are the ids by their hosts."""
        with Store(self.place, reading=True) as store:
            yield store, {host: (host, study) for host, study in studies.items()}

    def texts(self, studies: Sequence[FinishedStudy]) -> list[str]:
        """Return the texts of studies as they are kept."""
        found = []
        with Store(self.place, reading=True) as store:
            for one in studies:
                store.host = one.host
                found.append(store.text(one.id))
        return found

    def of(self, host: str, *, reading: bool = False) -> Store:
        """Return the store, in which ids mean a host's studies."""
        return Store(self.place, reading=reading, host=host)

    def place_of(self, host: str) -> StorePlace:  # noqa: ARG002 - all are in one
        """Return where a host's studies are."""
        return self.place

    def __str__(self) -> str:
        return str(self.place)


FleetPlace = FleetFolder | FleetStore
