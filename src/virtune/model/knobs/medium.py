# SPDX-License-Identifier: Apache-2.0
"""Knobs of the physical device (K104..K108)."""

from functools import partial

from virtune.model.knob import Change, Choice, Knob, Layer, Risk, Text
from virtune.model.knobs.domains import ON_OFF
from virtune.model.knobs.sources import unverified

_knob = partial(Knob, layer=Layer.MEDIUM)

KNOBS: tuple[Knob, ...] = (
    _knob(
        id="medium.lba_format",
        number="K104",
        domain=Choice(values=("512e", "4Kn")),
        default="(how the device was formatted)",
        change=Change.OFFLINE,
        risk=Risk.DATA,
        risk_note="Formatting erases the device.",
        what="The block size in which the device is addressed.",
        why="Writes that are smaller than the medium's block are read, changed and written back.",
        spelled={"linux": "nvme format --lbaf"},
        source=(unverified("no source of its own in our knowledge base"),),
    ),
    _knob(
        id="medium.write_cache",
        number="K105",
        domain=ON_OFF,
        default="(the device's)",
        change=Change.LIVE,
        risk=Risk.PERFORMANCE,
        risk_note=(
            "Off, every write waits for the medium. On without power-loss protection it is safe only while "
            "flushes are honoured all the way."
        ),
        what="The device's volatile write cache, and whether it survives a power cut (PLP).",
        why="A consumer SSD without power-loss protection takes about a millisecond for a flush.",
        spelled={"linux": "nvme id-ctrl (VWC), hdparm -W"},
        source=(unverified("no source of its own in our knowledge base"),),
    ),
    _knob(
        id="medium.precondition",
        number="K106",
        domain=Text(shape="writes before measuring, as 2x capacity"),
        default="(none)",
        change=Change.OFFLINE,
        risk=Risk.DATA,
        risk_note="Writes over the whole device, and wears it.",
        what="Over-provisioning, TRIM, and how far the device is from its steady state.",
        why=(
            "Results of a fresh SSD are not its steady state: write twice the capacity first (SNIA's method, "
            "unverified)."
        ),
        spelled={"linux": "blkdiscard, fio"},
        source=(unverified("SNIA's method"),),
    ),
    _knob(
        id="medium.power_state",
        number="K107",
        domain=Text(shape="temperature and power state"),
        default="(the device's)",
        change=Change.LIVE,
        what="Whether the device is hot or saving power. Read it before blaming QEMU.",
        why="A hot device slows itself down.",
        spelled={"linux": "nvme smart-log, nvme get-feature -f 2"},
        source=(unverified("no source of its own in our knowledge base"),),
    ),
    _knob(
        id="medium.link_width",
        number="K107",
        domain=Text(shape="PCIe speed and lanes"),
        default="(negotiated)",
        change=Change.HOST_REBOOT,
        what="The PCIe link the device got. Read it before blaming QEMU.",
        why="A link that came up downgraded halves the bandwidth, or worse.",
        spelled={"linux": "lspci -vv, LnkSta"},
        source=(unverified("no source of its own in our knowledge base"),),
    ),
    _knob(
        id="medium.namespaces",
        number="K108",
        domain=Text(shape="namespaces and SR-IOV functions"),
        default="(one namespace)",
        change=Change.OFFLINE,
        risk=Risk.DATA,
        risk_note="Making namespaces anew erases them.",
        what="How one device is divided among VMs.",
        why="An SR-IOV function can be given to a VM whole.",
        spelled={"linux": "nvme create-ns, sriov_numvfs"},
        source=(unverified("no source of its own in our knowledge base"),),
    ),
)
"""In the order of the knowledge base."""
