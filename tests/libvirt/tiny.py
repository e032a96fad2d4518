# SPDX-License-Identifier: Apache-2.0
"""A guest of 512 bytes: a boot sector that needs its driver, says so on the serial port, and obeys the power button.

It boots under TCG in a fraction of a second, so that power cycles can be tried by the dozen. It looks for a
virtio-blk device on PCI, as an operating system does whose initramfs has that driver alone: on another bus the
firmware still starts it, and it then hangs in silence, as such a guest does.
"""

UP = "tiny guest is up"

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


def boot_sector(*, obeys: bool = True) -> bytes:
    """The sector; one that does not obey hangs when it is up, and hears no power button."""
    rest = _SAY + (_OBEY if obeys else b"")
    modern, transitional = (bytes.fromhex(_FIND.format(device=device)) for device in ("4210", "0110"))
    code = bytes.fromhex("31c0 8ed8") + modern  # xor ax,ax; mov ds,ax
    code += b"\x73" + bytes([len(transitional) + 2]) + transitional  # jnc: found
    code += b"\x72" + bytes([3 + len(rest)])  # jc: hang
    text = 0x7C00 + len(code) + 3 + len(rest) + len(_HANG)
    code += b"\xbe" + text.to_bytes(2, "little") + rest + _HANG + f"{UP}\n".encode() + b"\0"
    return code.ljust(510, b"\0") + b"\x55\xaa"
