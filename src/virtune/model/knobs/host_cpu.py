# SPDX-License-Identifier: Apache-2.0
"""Knobs of the host's CPUs and buses: speed, sleep, mitigations, link power, ticks (K99..K102)."""

from functools import partial

from virtune.model.knob import Change, Choice, Knob, Layer, Risk, Text
from virtune.model.knobs.domains import MICROSECONDS
from virtune.model.knobs.sources import TUNED, documented, unverified, vendor

_knob = partial(Knob, layer=Layer.HOST)

KNOBS: tuple[Knob, ...] = (
    _knob(
        id="host.cpu_governor",
        number="K99",
        domain=Choice(values=("performance", "powersave", "schedutil", "ondemand")),
        default="(the distribution's)",
        change=Change.LIVE,
        risk=Risk.PERFORMANCE,
        risk_note="Costs power.",
        what="What decides the clock frequency of the host's CPUs.",
        why="A CPU that is slow to speed up shows at depth 1.",
        spelled={"linux": "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor, tuned-adm"},
        source=(documented(TUNED),),
    ),
    _knob(
        id="host.cstate_latency",
        number="K99",
        domain=MICROSECONDS,
        default="(no limit)",
        change=Change.LIVE,
        risk=Risk.PERFORMANCE,
        risk_note="Costs power, and the headroom of turbo clocks.",
        what="How long a sleeping CPU may take to wake up.",
        why=(
            "At depth 1 on a device of 10 us the wake-up from a deep sleep can be the largest term (more "
            "than 100 us on some parts, unverified). tuned's latency-performance allows C1, virtual-host "
            "about 70 us. No published number for VMs was found."
        ),
        spelled={"linux": "/dev/cpu_dma_latency, tuned force_latency; intel_idle.max_cstate= at boot"},
        source=(documented(TUNED), unverified("how long the deep states take")),
    ),
    _knob(
        id="host.mitigations",
        number="K100",
        domain=Text(shape="auto, off, or more exactly"),
        default="auto",
        change=Change.HOST_REBOOT,
        risk=Risk.SECURITY,
        risk_note="`off` lets guests read what is not theirs. virtune never advises it.",
        what="Whether the kernel works around the security faults of CPUs (Spectre and others).",
        why=(
            "Every I/O makes exits and system calls. The only number for VMs and NVMe is of 2018; there is "
            "no modern one."
        ),
        spelled={"linux": "mitigations= (kernel command line)"},
        source=(vendor("a figure of 2018 for KVM and NVMe"),),
    ),
    _knob(
        id="host.pcie_aspm",
        number="K101",
        domain=Choice(values=("default", "performance", "powersave", "powersupersave")),
        default="default",
        change=Change.LIVE,
        risk=Risk.PERFORMANCE,
        risk_note="Costs power.",
        what="Whether PCIe links sleep.",
        why="The first I/O after a rest wakes the link.",
        spelled={"linux": "/sys/module/pcie_aspm/parameters/policy"},
        source=(unverified("its share in latency"),),
    ),
    _knob(
        id="host.nvme_apst_latency",
        number="K101",
        domain=MICROSECONDS,
        default="(the driver's)",
        change=Change.HOST_REBOOT,
        risk=Risk.PERFORMANCE,
        risk_note="Costs power.",
        what="How long an NVMe disk may take to wake from its own power states; 0 keeps it awake.",
        why="The first I/O after a rest wakes the disk.",
        spelled={"linux": "nvme_core.default_ps_max_latency_us="},
        source=(unverified("its share in latency"),),
    ),
    _knob(
        id="host.ticks",
        number="K102",
        domain=Text(shape="nohz_full=, PREEMPT_RT, SMT"),
        default="(the distribution's)",
        change=Change.HOST_REBOOT,
        what="Ticks, preemption and SMT of the host. Recorded, not turned.",
        why="Changes every number measured above it.",
        spelled={"linux": "nohz_full=, nosmt"},
        source=(unverified("no source of its own in our knowledge base"),),
    ),
)
"""In the order of the knowledge base."""
