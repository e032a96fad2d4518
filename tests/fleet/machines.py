# SPDX-License-Identifier: Apache-2.0
"""Hosts of a fleet on one machine: network namespaces with an sshd, a host key and a hostname of their own each.

The addresses exist inside the namespaces only. ssh reaches them from a namespace in the middle, by a ProxyCommand, so
that what runs the test needs no address itself, and a link that is taken down cuts a real TCP connection.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import virtune
from virtune import __version__

BIN = Path(sys.executable).parent
SOURCE = Path(virtune.__file__).parents[1]
"""Where the virtune is that is tested; the environment may have another one, of another checkout."""

DISK_MIB = 400
"""The disk that hosts with a limit share; loads of 8 MiB and what virtune leaves free fit into it."""

UP_SECONDS = 60
"""How long an sshd may take to listen; it takes some milliseconds."""


def call(*words: str, check: bool = True) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert not check or done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


@dataclass
class Machine:
    """One host: its place on this machine's disk, its namespace, its sshd."""

    name: str
    number: int
    place: Path
    namespace: str
    middle: str
    sshd: "subprocess.Popen[bytes] | None" = None
    var: Path = Path("/nonexistent")
    group: Path | None = None
    """What is its /var/tmp, and the control group of all that runs on it."""

    @property
    def address(self) -> str:
        return f"10.99.{self.number}.2"

    def link(self, state: str) -> None:
        call("ip", "-n", self.middle, "link", "set", f"v{self.number}", state)

    def sessions(self) -> list[int]:
        """The processes that serve connections: what its sshd has started."""
        assert self.sshd is not None
        found = []
        for task in Path(f"/proc/{self.sshd.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(pid) for pid in (task / "children").read_text().split()]
        return found


@dataclass
class Machines:
    """All hosts, and the ssh_config by which they are reached."""

    place: Path
    middle: str
    by_name: dict[str, Machine] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.place / "ssh_config"

    def known(self, name: str) -> str:
        key = (self.by_name[name].place / "host_key.pub").read_text().split()
        return f"{name} {key[0]} {key[1]}\n"

    def write_config(self) -> None:
        """Write an ssh_config: each host, `twin` (the first again), and three that are refused."""
        first = self.by_name["a"]
        names = {one.name: one for one in self.by_name.values()}
        others = {"twin": first, "wrongkey": first, "newkey": first, "stranger": first}
        lines = []
        for name, machine in (names | others).items():
            alias = {"twin": "a", "stranger": "a"}.get(name, name)
            identity = self.place / ("other_key" if name == "stranger" else "key")
            relay = f"exec 3<>/dev/tcp/{machine.address}/22; cat <&0 >&3 & exec cat <&3"
            lines += [
                f"Host {name}",
                f"  HostKeyAlias {alias}",
                f"  IdentityFile {identity}",
                f"  ProxyCommand ip netns exec {self.middle} bash -c '{relay}'",
            ]
        lines += ["Host *", "  User root", "  IdentitiesOnly yes", f"  UserKnownHostsFile {self.place}/known",
                  "  GlobalKnownHostsFile /dev/null"]  # fmt: skip
        self.config.write_text("\n".join(lines) + "\n")
        wrong = (self.place / "other_key.pub").read_text().split()
        every = "".join(self.known(name) for name in self.by_name)
        (self.place / "known").write_text(f"{every}wrongkey {wrong[0]} {wrong[1]}\n")


@contextlib.contextmanager
def machines(place: Path, *names: str, reads: Mapping[str, int] | None = None) -> Iterator[Machines]:
    """Make hosts of these names; everything that was made is removed, whatever happens.

    With `reads` their /var/tmp are on one real disk, and each host's control group lets it read so often a second.
    """
    unique = f"vt{os.getpid()}"
    every = Machines(place=place, middle=f"{unique}m")
    with contextlib.ExitStack() as undo:
        for key in ("key", "other_key"):
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / key))
        shutil.copy(place / "key.pub", place / "authorized")
        # sshd wants it, and Debian's service makes it at its start
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        _namespace(every.middle, undo)
        disk = _disk(place, undo) if reads else place
        for number, name in enumerate(names, 1):
            machine = Machine(name, number, place / name, f"{unique}h{number}", every.middle)
            every.by_name[name] = machine
            machine.var = disk / f"{name}.var"
            if reads:
                machine.group = _limited(f"{unique}{name}", disk, reads[name], undo)
            _start(machine, place / "authorized", undo)
        every.write_config()
        for machine in every.by_name.values():
            _await(machine)
        yield every


def _disk(place: Path, undo: contextlib.ExitStack) -> Path:
    """Make a filesystem on a loop device and mount it."""
    image, disk = place / "disk.raw", place / "disk"
    with image.open("wb") as file:
        file.truncate(DISK_MIB * 1024**2)
    call("mkfs.ext4", "-q", "-O", "^has_journal", "-E", "lazy_itable_init=0", str(image))
    disk.mkdir()
    call("mount", "-o", "loop", str(image), str(disk))
    undo.callback(call, "umount", "-l", str(disk), check=False)
    return disk


def _limited(name: str, disk: Path, reads: int, undo: contextlib.ExitStack) -> Path:
    """Make a control group that may read from a disk so often a second."""
    number = disk.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    blkio = Path("/sys/fs/cgroup/blkio")
    group = (blkio if blkio.is_dir() else blkio.parent) / name
    group.mkdir()
    undo.callback(_remove, group)
    if blkio.is_dir():
        (group / "blkio.throttle.read_iops_device").write_text(f"{device} {reads}")
    else:
        (group.parent / "cgroup.subtree_control").write_text("+io")
        (group / "io.max").write_text(f"{device} riops={reads}")
    return group


def _remove(group: Path) -> None:
    """Remove a control group when its last process is gone."""
    deadline = time.monotonic() + UP_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.05)


def _namespace(name: str, undo: contextlib.ExitStack) -> None:
    call("ip", "netns", "add", name)
    undo.callback(call, "ip", "netns", "del", name, check=False)
    call("ip", "-n", name, "link", "set", "lo", "up")


def _start(machine: Machine, authorized: Path, undo: contextlib.ExitStack) -> None:
    _namespace(machine.namespace, undo)
    place, link = machine.place, f"v{machine.number}"
    for folder in ("bin", "data", "tmp", "home"):
        (place / folder).mkdir(parents=True)
    # which version it is, every call asks first: that needs no Python (test_install.py asks a real one)
    program = place / "bin" / "virtune"
    program.write_text(f'#!/bin/sh\n[ "$1" != --version ] || exec echo virtune, version {__version__}\n'
                       f'export PYTHONPATH={SOURCE}\nexec {BIN}/virtune "$@"\n')  # fmt: skip
    program.chmod(0o755)
    machine.var.mkdir()
    call("ip", "-n", machine.middle, "link", "add", link, "type", "veth", "peer", "name", "eth0",
         "netns", machine.namespace)  # fmt: skip
    call("ip", "-n", machine.middle, "addr", "add", f"10.99.{machine.number}.1/24", "dev", link)
    machine.link("up")
    call("ip", "-n", machine.namespace, "addr", "add", f"{machine.address}/24", "dev", "eth0")
    call("ip", "-n", machine.namespace, "link", "set", "eth0", "up")
    call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / "host_key"))
    (place / "sshd_config").write_text(
        f"HostKey {place}/host_key\nAuthorizedKeysFile {authorized}\nStrictModes no\nUsePAM no\nPidFile none\n"
        "PermitRootLogin yes\nPasswordAuthentication no\nUseDNS no\nSubsystem sftp internal-sftp\n"
        f"SetEnv PATH={place}/bin:/usr/sbin:/usr/bin:/sbin:/bin XDG_DATA_HOME={place}/data TMPDIR={place}/tmp "
        f"HOME={place}/home\n"
    )
    listen(machine)
    undo.callback(_stop, machine)


def listen(machine: Machine) -> None:
    """Start the sshd of a host, also after it was killed."""
    place = machine.place
    join = "" if machine.group is None else f"echo $$ > {machine.group}/cgroup.procs && "
    script = (
        f"{join}hostname {machine.name} && mount --bind {machine.var} /var/tmp && exec /usr/sbin/sshd -D -e -f $0"
    )
    # not by `ip netns exec`, which mounts /sys anew without the control groups
    inside = ["nsenter", f"--net=/run/netns/{machine.namespace}", "unshare", "--mount", "--uts"]
    with (place / "sshd.log").open("wb") as log:
        machine.sshd = subprocess.Popen(
            [*inside, "sh", "-c", script, str(place / "sshd_config")],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def _await(machine: Machine) -> None:
    """Wait until its sshd listens."""
    deadline = time.monotonic() + UP_SECONDS
    while "Server listening" not in (log := (machine.place / "sshd.log").read_text()):
        assert machine.sshd is not None
        assert machine.sshd.poll() is None, log
        assert time.monotonic() < deadline, log
        time.sleep(0.02)


def _stop(machine: Machine) -> None:
    """End an sshd with what it serves, and wait for it."""
    assert machine.sshd is not None
    for pid in machine.sessions():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
    machine.sshd.kill()
    machine.sshd.wait(60)
