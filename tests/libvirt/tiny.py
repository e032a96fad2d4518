# SPDX-License-Identifier: Apache-2.0
"""A guest of 512 bytes: a boot sector that needs its driver, says so on the serial port, and obeys the power button.

It boots under TCG in a fraction of a second, so that power cycles can be tried by the dozen. It looks for a
virtio-blk device on PCI, as an operating system does whose initramfs has that driver alone: on another bus the
firmware still starts it, and it then hangs in silence, as such a guest does.
"""

import time
from collections.abc import Callable

from tests.libvirt.conftest import DOMAIN
from tests.libvirtd import Libvirtd

UP = "tiny guest is up"

SERIAL = "<serial type='pty'><log file='{log}' append='on'/></serial>"

_FIND = "b802b1 b9{device} baf41a 31f6 cd1a"
"""BIOS, "find PCI device": number 0 of vendor 1af4."""

_SAY = bytes.fromhex(
    "ac 84c0 7410"  # lodsb; test al,al; jz: all is said
    "50 bafd03 ec a820 74fb"  # push ax; in al,0x3fd; test al,0x20; jz: until the port takes a byte
    "58 baf803 ee ebeb"  # pop ax; out 0x3f8,al; the next
)
_OBEY = bytes.fromhex(
    "ba0206 b80001 ef"  # out 0x602,0x100: enable the power button (ACPI's PM1_EN, where SeaBIOS puts it)
    "fb f4 ba0006 ed f6c401 74f5"  # sti; hlt; in ax,0x600; test ah,1; jz: until it is pressed
    "ba0406 b80020 ef"  # out 0x604,0x2000: power off (S5)
)
_HANG = bytes.fromhex("fb f4 ebfc")  # sti; hlt; for ever


def boot_sector(*, obeys: bool = True, anywhere: bool = False) -> bytes:
    """The sector; one that does not obey hangs when it is up, and hears no power button. One that boots anywhere has
    the drivers of all buses.
    """
    rest = _SAY + (_OBEY if obeys else b"")
    modern, transitional = (bytes.fromhex(_FIND.format(device=device)) for device in ("4210", "0110"))
    code = bytes.fromhex("31c0 8ed8") + modern  # xor ax,ax; mov ds,ax
    code += b"\x73" + bytes([len(transitional) + 2]) + transitional  # jnc: found
    code += b"\x72" + bytes([3 + len(rest)])  # jc: hang
    if anywhere:
        code = code[:4]
    text = 0x7C00 + len(code) + 3 + len(rest) + len(_HANG)
    code += b"\xbe" + text.to_bytes(2, "little") + rest + _HANG + f"{UP}\n".encode() + b"\0"
    return code.ljust(510, b"\0") + b"\x55\xaa"


def boot_tiny(daemon: Libvirtd, name: str, *, obeys: bool = True, anywhere: bool = False, beside: str = "") -> str:
    """Define such a guest, start it, and wait until it is up."""
    image, log = daemon.home / f"{name}.raw", daemon.home / "var/log/libvirt" / f"{name}-console.log"
    image.write_bytes(boot_sector(obeys=obeys, anywhere=anywhere).ljust(2**20, b"\x01"))
    log.unlink(missing_ok=True)
    xml = DOMAIN.format(
        name=name, driver="cache='writeback'", rest="", bus="virtio", target="vda", image=image
    ).replace("<graphics", SERIAL.format(log=f"/var/log/libvirt/{log.name}") + beside + "<graphics")
    daemon.define(xml)
    start(daemon, name)
    return name


def start(daemon: Libvirtd, name: str) -> None:
    """Start a guest and wait until it is up."""
    before = ups(daemon, name)
    daemon.virsh("start", name)
    wait_for(lambda: ups(daemon, name) > before)


def ups(daemon: Libvirtd, name: str) -> int:
    """How often a guest has come up."""
    log = daemon.home / "var/log/libvirt" / f"{name}-console.log"
    return log.read_text().count(UP) if log.exists() else 0


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
