# SPDX-License-Identifier: Apache-2.0
"""Where an RBD image of Ceph lies, as it is asked for: `POOL[/NAMESPACE][:id=USER][:conf=FILE]`."""

import re
from dataclasses import dataclass

_SHAPE = re.compile(
    r"(?P<pool>[A-Za-z0-9._-]{1,64})(/(?P<namespace>[A-Za-z0-9._-]{1,64}))?"
    r"(:id=(?P<user>[A-Za-z0-9._-]{1,64}))?(:conf=(?P<conf>/[A-Za-z0-9/._-]{1,200}))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RbdPlace:
    """A pool of a Ceph cluster; None for Ceph's defaults: no namespace, the user `admin`, /etc/ceph/ceph.conf."""

    pool: str
    namespace: str | None = None
    user: str | None = None
    conf: str | None = None

    @property
    def text(self) -> str:
        """It as it is asked for."""
        more = (("/", self.namespace), (":id=", self.user), (":conf=", self.conf))
        return self.pool + "".join(f"{sign}{value}" for sign, value in more if value is not None)

    @property
    def path(self) -> str:
        """The beginning of the path of its images."""
        return self.pool if self.namespace is None else f"{self.pool}/{self.namespace}"


def rbd_place(text: str) -> RbdPlace:
    """Read such a place; raises ValueError with the form that it must have."""
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise ValueError("it is POOL[/NAMESPACE][:id=USER][:conf=FILE], with letters, digits and . _ - in the names")
    return RbdPlace(**found.groupdict())
