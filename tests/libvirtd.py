# SPDX-License-Identifier: Apache-2.0
"""A real libvirtd of the tests' own: no systemd, its own sockets, configuration, state and logs.

It runs in a mount namespace in which libvirt's directories are private ones, so that the machine's libvirt, if it has
one, is neither seen nor touched. Its guests run under TCG.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PLACES = ("/etc/libvirt", "/run/libvirt", "/var/lib/libvirt", "/var/log/libvirt", "/var/cache/libvirt")
"""What libvirtd reads and writes; each is covered by a directory of ours."""

PROGRAMS = ("libvirtd", "virsh", "unshare", "qemu-system-x86_64")


@dataclass
class Libvirtd:
    """A running libvirtd: where it listens, and ways to talk to it and to kill it."""

    home: Path
    process: "subprocess.Popen[bytes]"

    @property
    def uri(self) -> str:
        return f"qemu:///system?socket={self.home}/run/libvirt/libvirt-sock"

    def virsh(self, *words: str, ok: bool = True) -> str:
        done = subprocess.run(["virsh", "-q", "-c", self.uri, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or not ok, f"{words}: {done.stderr}"
        return done.stdout if ok else done.stdout + done.stderr

    def xml(self, name: str, *, live: bool = False) -> str:
        return self.virsh("dumpxml", name, "--security-info", *(() if live else ("--inactive",)))

    def define(self, xml: str) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".xml", dir=self.home) as file:
            file.write(xml)
            file.flush()
            self.virsh("define", file.name)

    def qemu(self, name: str) -> int:
        """The pid of a domain's QEMU."""
        return int((self.home / "run" / "libvirt" / "qemu" / f"{name}.pid").read_text())

    def forget(self) -> None:
        """Remove every domain."""
        for name in self.virsh("list", "--all", "--name").split():
            self.virsh("destroy", name, ok=False)
            self.virsh("undefine", name)

    def restart(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the daemon and start it again; its guests live on."""
        self.process.send_signal(how)
        self.process.wait(60)
        self.process = _start(self.home)


def plain(xml: str) -> list[str]:
    """The lines of a live XML without what libvirt numbers anew with each plugging, in any order."""
    return sorted(line for line in xml.splitlines() if "<alias" not in line and "index=" not in line)


@contextlib.contextmanager
def libvirtd(home: Path) -> Iterator[Libvirtd]:
    """Start a libvirtd in `home` and end it, with all of its guests."""
    etc = home / "etc" / "libvirt"
    shutil.copytree("/etc/libvirt", etc)
    # libvirt looks for a free port and QEMU takes it a moment later: two daemons that look in one range meet there
    first = 5900 + 100 * (os.getpid() % 200)
    ports = f"remote_display_port_min = {first}\nremote_display_port_max = {first + 99}\n"
    (etc / "qemu.conf").write_text(
        'user = "root"\ngroup = "root"\nstdio_handler = "file"\nremember_owner = 0\n' + ports
    )
    (etc / "libvirtd.conf").write_text('auth_unix_rw = "none"\nauth_unix_ro = "none"\nunix_sock_group = "root"\n')
    shutil.rmtree(etc / "qemu", ignore_errors=True)  # the machine's own domains and networks
    for place in PLACES[1:]:
        (home / place.lstrip("/")).mkdir(parents=True)
    # it waits for the end of its input, which comes with the end of these tests too, however they end
    with subprocess.Popen(
        [sys.executable, __file__, str(home)], stdin=subprocess.PIPE, start_new_session=True
    ) as guard:
        daemon = Libvirtd(home, _start(home))
        try:
            yield daemon
            daemon.forget()
        finally:
            assert guard.stdin is not None
            guard.stdin.close()
            guard.wait(60)
            daemon.process.wait(60)


def _end_all(home: Path) -> None:
    """End a libvirtd and its guests, which outlive it."""
    run = home / "run" / "libvirt" / "qemu"
    for place, program, how in (
        *((one, b"qemu", signal.SIGKILL) for one in run.glob("*.pid")),
        (home / "libvirtd.pid", b"libvirtd", signal.SIGTERM),
    ):
        with contextlib.suppress(OSError, ValueError):
            pid = int(place.read_text())
            if program in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, how)


def _start(home: Path) -> "subprocess.Popen[bytes]":
    covers = "".join(f"mount --bind {home}{place} {place} && " for place in PLACES)
    made = " ".join(PLACES)
    script = f"mkdir -p {made} && {covers}exec libvirtd --pid-file {home}/libvirtd.pid"
    with (home / "libvirtd.log").open("ab") as log:
        process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    socket = home / "run" / "libvirt" / "libvirt-sock"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        uri = f"qemu:///system?socket={socket}"
        if subprocess.run(["virsh", "-c", uri, "version"], capture_output=True).returncode == 0:
            return process
        time.sleep(0.1)
    raise AssertionError(f"libvirtd did not come up: {(home / 'libvirtd.log').read_text()[-1000:]}")


if __name__ == "__main__":
    sys.stdin.read()
    _end_all(Path(sys.argv[1]))
