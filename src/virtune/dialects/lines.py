# SPDX-License-Identifier: Apache-2.0
"""Configurations that are lines of text: decoded, bounded, and changed one line at a time (pure)."""

from virtune.model.errors import ReadError

BYTES_MAX = 1024 * 1024
"""The configuration of one VM is some kilobytes; Proxmox's cluster file system takes no file larger than 1 MiB."""


def decoded(text: bytes) -> str:
    """Return a text of lines; raises ReadError for one that is none."""
    if len(text) > BYTES_MAX:
        raise ReadError(f"it is larger than {BYTES_MAX // 1024**2} MiB, which no VM's configuration is")
    if b"\0" in text:
        raise ReadError("it is no text")
    return text.decode(errors="surrogateescape")


def with_line(text: bytes, number: int, line: str) -> bytes:
    """Return a text with one line (from 1) written anew; its end stays as it was."""
    lines = text.splitlines(keepends=True)
    old = lines[number - 1]
    end = old[len(old.rstrip(b"\r\n")) :]
    lines[number - 1] = line.encode(errors="surrogateescape") + end
    return b"".join(lines)
