# SPDX-License-Identifier: Apache-2.0
"""Change a Proxmox VM by `qm set`, reversibly: journalled first, read again after, put back on any failure.

`qm` is given the digest of the configuration that the change was made for, and refuses another one; it writes into
`[PENDING]` what a running VM takes at its next start. No disk is ever deleted, and no snapshot's section is touched.

Source: qemu-server 9.2.6, PVE/API2/Qemu.pm (update_vm), PVE/QemuServer.pm (write_vm_config, vmconfig_update_disk).
"""

import contextlib
import hashlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from virtune import shell
from virtune.apply.journal import Entry, Journal, Step
from virtune.bounded import read_bounded
from virtune.dialects.proxmox import Config, is_disk, read_config, set_words, vmid_of
from virtune.dialects.text.lines import BYTES_MAX, options_of
from virtune.model.domain import SettingChange
from virtune.model.errors import NotInForceError, PreconditionError, UsageError, VirtuneError, words_of

SCHEME = "qm:"
"""What the journal's place of such a VM begins with; the file's path follows."""

_PATIENCE_SECONDS = 120.0
"""`qm` waits for a lock that another task holds, and activates volumes."""


def is_here(path: Path) -> bool:
    """Whether a file is the configuration that `qm` changes, and not a copy of it: a change made for a copy would
    change the VM, and be looked for in the copy.
    """
    return path.resolve().parent == shell.proxmox_directory().resolve()


class ProxmoxVm:
    """One VM of this node, by the file of its configuration."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError for a file that is not called after a VM, and for a copy of one."""
        self.path, vmid = path.absolute(), vmid_of(path.stem)
        if vmid is None or path.suffix != ".conf":
            raise UsageError(f"{path} is not the configuration of a VM by its number (101.conf)")
        if not is_here(path):
            raise UsageError(
                f"{path} is a copy: `qm` changes what is in {shell.proxmox_directory()}",
                hint=f"name the VM by its number, {vmid}; `virtune apply advise` shows the change of a copy",
            )
        self.vmid = vmid

    @property
    def place(self) -> str:
        """Where the journal says that it is."""
        return f"{SCHEME}{self.path}"

    def text(self) -> bytes:
        """Return its configuration; raises PreconditionError."""
        try:
            return read_bounded(self.path, BYTES_MAX)
        except OSError as error:
            raise PreconditionError(f"{self.path} cannot be read: {words_of(error)}") from None

    def apply(
        self, turns: Sequence[SettingChange], before: bytes, after: bytes, *, journal: Journal, when: datetime,
        group: str = "",
    ) -> tuple[Entry, bytes]:  # fmt: skip
        """Make a change of `before`, one of a `group`; return the journal's entry and the configuration then.

        Raises PreconditionError for a VM that is locked or was changed since, NotInForceError where Proxmox made
        something else of it, and VirtuneError when anything fails; the VM is then put back, or the error says how.
        """
        with journal.alone():
            config = read_config(before)
            if self.text() != before:
                raise PreconditionError("the VM was changed by somebody else while you looked; look again")
            if "lock" in config.running:
                why = f"VM {self.vmid} is locked: {config.running['lock'].value}"
                raise PreconditionError(why, hint="wait until that task is done")
            words = _words(before, after)
            name = config.running["name"].value if "name" in config.running else self.vmid
            entry = journal.begin(
                name=when.strftime("%Y%m%d-%H%M%S"), uri=self.place, uuid=self.vmid, domain=name, turns=turns,
                live=(), before=before, after=after, group=group,
            )  # fmt: skip
            try:
                found = self._make(journal, entry, words)
                journal.step(entry, Step.COMMITTED)
            except BaseException as error:
                self._back(journal, entry, error)
                raise
            return journal.read(entry.id), found

    def _make(self, journal: Journal, entry: Entry, words: Sequence[str]) -> bytes:
        journal.step(entry, Step.DEFINING)
        self._set(words, entry.before)
        found = self.text()
        journal.step(entry, Step.DEFINED, found=found)
        if wrong := differing(entry.after, found):
            raise NotInForceError(f"Proxmox made something else of it: {', '.join(wrong)}")
        return found

    def undo(self, entry: Entry, *, journal: Journal, anyway: bool) -> str:
        """Put a VM back as it was before a change; return what was done, in a sentence.

        Raises PreconditionError when others have changed it since, unless `anyway`.
        """
        with journal.alone():
            entry, current = journal.read(entry.id), self.text()
            if Step.UNDONE in entry.steps:
                return f"{entry.domain} was put back before; nothing to do"
            if not anyway and changed_since(entry, current):
                raise PreconditionError(
                    f"{entry.domain} has been changed since by somebody else, and undoing would take that away too",
                    hint=f"`virtune apply undo {entry.id} --show` shows how; `--anyway` puts back what was before",
                )
            return f"{entry.domain} is as it was before {entry.id}{self._restore(journal, entry, current)}"

    def _restore(self, journal: Journal, entry: Entry, current: bytes) -> str:
        with contextlib.suppress(VirtuneError):  # even on a full disk it is restored; the entry is open already
            journal.step(entry, Step.UNDOING)
        if words := _words(current, entry.before):
            self._set(words, current)
        found = self.text()
        if wrong := differing(entry.before, found):
            raise VirtuneError(f"{entry.domain} was put back, and Proxmox wrote something else: {', '.join(wrong)}")
        journal.step(entry, Step.UNDONE)
        waits = read_config(found).pending and not read_config(entry.before).pending
        return "; it runs as changed until it is shut down and started" if waits else ""

    def _back(self, journal: Journal, entry: Entry, error: BaseException) -> None:
        """Undo after a failure; the error's hint says whether that worked."""
        hint = f"the VM may be half changed: `virtune apply undo {entry.id}` puts it back"
        with contextlib.suppress(VirtuneError):
            entry, current = journal.read(entry.id), self.text()
            if not changed_since(entry, current):
                hint = f"{entry.domain} is as it was before{self._restore(journal, entry, current)}"
        if isinstance(error, VirtuneError):
            error.hint = hint

    def _set(self, words: Sequence[str], text: bytes) -> None:
        digest = hashlib.sha1(text, usedforsecurity=False).hexdigest()
        shell.run([shell.find("qm"), "set", self.vmid, *words, "--digest", digest], timeout_seconds=_PATIENCE_SECONDS)


def _words(before: bytes, after: bytes) -> tuple[str, ...]:
    """Return the options of `qm set` for a change; raises PreconditionError for one that would delete a disk."""
    new, gone = set_words(before, after)
    known = read_config(before).next_start
    if lost := [key for key in (*gone, *new) if is_disk(key) and (key in gone or key not in known)]:
        raise PreconditionError(f"{', '.join(lost)} is in one of the configurations only, and virtune moves no disk")
    return (*(word for key, value in new.items() for word in (f"--{key}", value)), *_delete(gone))


def _delete(gone: Sequence[str]) -> tuple[str, ...]:
    return ("--delete", ",".join(gone)) if gone else ()


def differing(asked: bytes, found: bytes) -> tuple[str, ...]:
    """Return the keys of the next start, and the snapshots, in which two configurations differ. The order of a disk's
    options does not count, and not its size, which Proxmox writes anew.
    """
    one, other = _meaning(read_config(asked)), _meaning(read_config(found))
    return tuple(key for key in sorted({*one, *other}) if one.get(key) != other.get(key))


def _meaning(config: Config) -> dict[str, object]:
    known: dict[str, object] = {f"[{one.section}] {one.key}": one.value for one in config.others}
    for key, one in config.next_start.items():
        options = frozenset((word.name, word.value) for word in options_of(one.value) if word.name != "size")
        known[key] = options if is_disk(key) else one.value
    return known


def changed_since(entry: Entry, current: bytes) -> tuple[str, ...]:
    """Return the keys that others have changed since; empty where what will start is virtune's, or as before."""
    made = entry.found or entry.after
    return () if not differing(entry.before, current) else differing(made, current)
