#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A storage daemon that does not do as it is told: whatever engine is asked for, it opens images with aio=threads.

LIE names another thing that it does otherwise: it leaves the IOThread out of the export, offers one queue, or polls.
It tells the truth for as long as there is a file that HONEST names.

It is the real daemon behind a relay on its monitor, so that the process which virtune looks at really runs something
else than was asked for. (A QEMU before 10.2 does the like by itself when an io_uring cannot be had in an IOThread.)
"""

import os
import re
import shutil
import socket
import sys
import threading

LIES = {
    "aio": (rb'"aio": ?"[a-z_]+"', b'"aio": "threads"'),
    "iothread": (rb', ?"iothread": ?"[a-z0-9]+"', b""),
    "queues": (rb'"num-queues": ?[0-9]+', b'"num-queues": 1'),
    "poll": (rb'"poll-max-ns": ?[0-9]+', b'"poll-max-ns": 32768'),
}


def relay(source: socket.socket, sink: socket.socket) -> None:
    while data := source.recv(65536):
        honest = "HONEST" in os.environ and os.path.exists(os.environ["HONEST"])
        sink.sendall(data if honest else re.sub(*LIES[os.environ.get("LIE", "aio")], data))


def main() -> None:
    arguments = sys.argv[1:]
    at = next(i for i, word in enumerate(arguments) if word.startswith("socket,id=monitor,fd="))
    asked = int(arguments[at].partition("fd=")[2])
    ours, theirs = socket.socketpair()
    if os.fork():
        os.set_inheritable(asked, False)
        os.set_inheritable(theirs.fileno(), True)
        arguments[at] = f"socket,id=monitor,fd={theirs.fileno()}"
        real = shutil.which("qemu-storage-daemon", path=os.environ["REAL_PATH"])
        assert real is not None
        os.execv(real, [real, *arguments])
    theirs.close()
    client = socket.socket(fileno=asked)
    threading.Thread(target=relay, args=(ours, client), daemon=True).start()
    relay(client, ours)


main()
