#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A storage daemon that does not do as it is told: whatever engine is asked for, it opens images with aio=threads.

LIE names another thing that it does otherwise: it leaves the IOThread out of the export, offers one queue, or polls.

It is the real daemon behind a relay on its monitor, so that the process which virtune looks at really runs something
else than was asked for. (A QEMU before 10.2 does the like by itself when an io_uring cannot be had in an IOThread.)
"""

import os
import re
import shutil
import socket
import sys
import threading
import time

LIES = {
    "aio": (rb'"aio": ?"[a-z_]+"', b'"aio": "threads"'),
    "iothread": (rb', ?"iothread": ?"[a-z0-9]+"', b""),
    "queues": (rb'"num-queues": ?[0-9]+', b'"num-queues": 1'),
    "poll": (rb'"poll-max-ns": ?[0-9]+', b'"poll-max-ns": 32768'),
}


def relay(source: socket.socket, sink: socket.socket) -> None:
    while data := source.recv(65536):
        sink.sendall(re.sub(*LIES[os.environ.get("LIE", "aio")], data))


def main() -> None:
    arguments = sys.argv[1:]
    at = next(i for i, word in enumerate(arguments) if word.startswith("socket,id=monitor,path="))
    asked = arguments[at].split("path=")[1].split(",")[0]
    arguments[at] = arguments[at].replace(asked, asked + ".real")
    if os.fork():
        real = shutil.which("qemu-storage-daemon", path=os.environ["REAL_PATH"])
        assert real is not None
        os.execv(real, [real, *arguments])
    while not os.path.exists(asked + ".real"):
        time.sleep(0.005)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(asked)
    listener.listen(1)
    client, _ = listener.accept()
    server = socket.socket(socket.AF_UNIX)
    server.connect(asked + ".real")
    threading.Thread(target=relay, args=(server, client), daemon=True).start()
    relay(client, server)


main()
