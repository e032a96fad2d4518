# SPDX-License-Identifier: Apache-2.0
"""A vhost-user-blk disk that lies: the other side of a guest's queue, for drivers that must not believe all they see.

It serves one queue of zeros over the vhost-user protocol (QEMU, docs/interop/vhost-user.rst), and `lie` says what it
does wrong with each request.
"""

import contextlib
import mmap
import os
import select
import socket
import struct
import threading
from pathlib import Path
from typing import Any, Self

VERSION_1, PROTOCOL_FEATURES, CONFIG = 1 << 32, 1 << 30, 1 << 9
REPLY = 0x5


class LyingDisk:
    """A disk on a socket, served in a thread of its own while the block runs."""

    def __init__(self, path: Path, *, sectors: int) -> None:
        self.lie = ""
        self.served = 0
        self._config = struct.pack("<Q", sectors).ljust(60, b"\0")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self._regions: list[tuple[int, int, int, mmap.mmap]] = []
        self._ring: dict[str, int] = {}
        self._seen = self._used = 0
        self._kick = self._call = -1
        self._stop, self._stopped = os.pipe()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._stopped)
        self._thread.join()
        os.close(self._stop)
        self._listener.close()

    def _serve(self) -> None:
        """Serve one QEMU after another: one that lost its back end comes back where it was told to reconnect."""
        waited: list[Any] = [self._listener, self._stop]
        while self._stop not in select.select(waited, [], [])[0]:
            with self._listener.accept()[0] as peer, contextlib.suppress(OSError, EOFError):
                self._serve_one(peer)
            self._forget()

    def _serve_one(self, peer: socket.socket) -> None:
        while True:
            waited: list[Any] = [peer, self._stop, *([self._kick] if self._kick >= 0 else [])]
            ready = select.select(waited, [], [])[0]
            if self._stop in ready:
                return
            if self._kick in ready:
                os.read(self._kick, 8)
                if self.lie == "gone":
                    return
                self._work()
            if peer in ready:
                self._answer(peer)

    def _forget(self) -> None:
        """Forget all that the other side told, as a back end that starts anew."""
        for fd in (self._kick, self._call):
            if fd >= 0:
                os.close(fd)
        for *_, memory in self._regions:
            memory.close()
        self._kick = self._call = -1
        self._regions.clear()
        self._ring.clear()

    def _answer(self, peer: socket.socket) -> None:
        head, fds, _, _ = socket.recv_fds(peer, 12, 8)
        if len(head) < 12:
            raise EOFError
        request, _, size = struct.unpack("<III", head)
        body = peer.recv(size, socket.MSG_WAITALL) if size else b""
        match request:
            case 1 | 15 | 17 | 11 | 24:
                self._say(peer, request, self._told(request, body))
            case 12:  # SET_VRING_KICK
                self._kick = fds[0]
            case 13 if fds:  # SET_VRING_CALL
                self._call = fds[0]
            case _:
                self._take(request, body, fds)

    def _told(self, request: int, body: bytes) -> bytes:
        """Answer what is asked."""
        match request:
            case 1:  # GET_FEATURES
                return struct.pack("<Q", VERSION_1 | PROTOCOL_FEATURES)
            case 15:  # GET_PROTOCOL_FEATURES
                return struct.pack("<Q", CONFIG)
            case 17:  # GET_QUEUE_NUM
                return struct.pack("<Q", 1)
            case 11:  # GET_VRING_BASE
                return struct.pack("<II", 0, self._seen)
        length = struct.unpack_from("<III", body)[1]  # GET_CONFIG
        return body[:12] + self._config[:length].ljust(length, b"\0")

    def _take(self, request: int, body: bytes, fds: list[int]) -> None:
        """Take what is told of memory and of the ring."""
        match request:
            case 5:  # SET_MEM_TABLE
                for index, fd in enumerate(fds):
                    guest, length, user, offset = struct.unpack_from("<QQQQ", body, 8 + 32 * index)
                    self._regions.append((guest, length, user, mmap.mmap(fd, length + offset)))
                    os.close(fd)
            case 8:  # SET_VRING_NUM
                self._ring["size"] = struct.unpack_from("<II", body)[1]
            case 9:  # SET_VRING_ADDR
                _, _, self._ring["table"], self._ring["used"], self._ring["available"], _ = struct.unpack(
                    "<IIQQQQ", body
                )
            case 10:  # SET_VRING_BASE
                self._seen = self._used = struct.unpack_from("<II", body)[1]

    def _say(self, peer: socket.socket, request: int, body: bytes) -> None:
        peer.sendall(struct.pack("<III", request, REPLY, len(body)) + body)

    def _place(self, address: int, *, user: bool) -> tuple[mmap.mmap, int]:
        for guest, length, base, memory in self._regions:
            start = base if user else guest
            if start <= address < start + length:
                return memory, address - start
        raise EOFError

    def _read(self, address: int, form: str, *, user: bool = True) -> tuple[int, ...]:
        return struct.unpack_from(form, *self._place(address, user=user))

    def _write(self, address: int, form: str, *values: int, user: bool = True) -> None:
        memory, at = self._place(address, user=user)
        struct.pack_into(form, memory, at, *values)

    def _work(self) -> None:
        """Serve what is new in the queue, or do what the lie says."""
        size = self._ring["size"]
        while self._seen != self._read(self._ring["available"] + 2, "<H")[0]:
            (head,) = self._read(self._ring["available"] + 4 + 2 * (self._seen % size), "<H")
            self._seen = (self._seen + 1) % 65536
            if self._names_itself(head):
                continue
            if self.lie == "never":
                continue
            status, bytes_read = self._chain(head)
            if self.lie != "unwritten":
                self._write(status, "<B", 7 if self.lie == "status" else 0, user=False)
            self._give_back(77 if self.lie == "strange" else head, 1 if self.lie == "short" else bytes_read + 1)
            if self.lie == "twice":
                self._give_back(head, bytes_read + 1)
            self.served += 1

    def _names_itself(self, head: int) -> bool:
        """Answer a request for the disk's serial number, which is `liar`; whether the request was one."""
        header, _, _, data = self._read(self._ring["table"] + 16 * head, "<QIHH")
        if self._read(header, "<I", user=False) != (8,):
            return False
        place = self._read(self._ring["table"] + 16 * data, "<Q")[0]
        for at, byte in enumerate(b"liar\0"):
            self._write(place + at, "<B", byte, user=False)
        status, bytes_read = self._chain(head)
        self._write(status, "<B", 0, user=False)
        self._give_back(head, bytes_read + 1)
        return True

    def _chain(self, head: int) -> tuple[int, int]:
        """Return where the status of a request goes, and how many bytes it reads."""
        at, bytes_read = head, 0
        while True:
            address, length, flags, following = self._read(self._ring["table"] + 16 * at, "<QIHH")
            if not flags & 1:
                return address, bytes_read
            bytes_read += length if flags & 2 else 0
            at = following

    def _give_back(self, head: int, wrote: int) -> None:
        used, size = self._ring["used"], self._ring["size"]
        self._write(used + 4 + 8 * (self._used % size), "<II", head, wrote)
        self._used = (self._used + 1) % 65536
        self._write(used + 2, "<H", self._used)
