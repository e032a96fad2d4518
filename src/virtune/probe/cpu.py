# SPDX-License-Identifier: Apache-2.0
"""The processors: number, topology, frequency governors and idle states."""

from pathlib import Path

from virtune.model.facts import CpuFacts, IdleState, NumaNode, Unknown
from virtune.probe import tree

_CPUS = "/sys/devices/system/cpu"


def cpu_facts(root: Path = tree.ROOT) -> CpuFacts:
    """Return the processors' facts."""
    online = online_cpus(root)
    cores, sockets = _topology(online, root)
    vulnerable, mitigated = _vulnerabilities(root)
    return CpuFacts(
        model=_model(root),
        online=online if isinstance(online, Unknown) else len(online),
        cores=cores,
        sockets=sockets,
        smt=tree.flag(f"{_CPUS}/smt/active", root),
        numa=_numa(root),
        frequency_driver=_frequency("scaling_driver", root),
        governors=_governors(root),
        turbo=_turbo(root),
        idle_driver=tree.text(f"{_CPUS}/cpuidle/current_driver", root),
        deepest_idle=_deepest_idle(root),
        vulnerable=vulnerable,
        mitigated=mitigated,
    )


def parse_list(text: str) -> tuple[int, ...]:
    """Read the kernel's lists of CPUs: `0-3,8`. Raises ValueError for anything else."""
    found: list[int] = []
    for part in text.split(",") if text else []:
        low, _, high = part.partition("-")
        found += range(int(low), int(high or low) + 1)
    return tuple(found)


def online_cpus(root: Path = tree.ROOT) -> tuple[int, ...] | Unknown:
    """Return the ids of the CPUs that are online; they need not be 0 to their number."""
    text = tree.text(f"{_CPUS}/online", root)
    if isinstance(text, Unknown):
        return text
    try:
        return parse_list(text)
    except ValueError:
        return Unknown(f"{_CPUS}/online: {text[:40]!r} is no list of CPUs")


def _model(root: Path) -> str | Unknown:
    # arm64 has no `model name`; what its firmware calls the machine comes nearest
    for line in tree.lines("/proc/cpuinfo", root):
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "cpu", "Processor", "uarch") and value.strip():
            return value.strip()
    model = tree.text("/sys/firmware/devicetree/base/model", root)
    return Unknown("/proc/cpuinfo names no model") if isinstance(model, Unknown) else model.rstrip("\0")


def _topology(online: tuple[int, ...] | Unknown, root: Path) -> tuple[int | Unknown, int | Unknown]:
    """Return the number of cores and of sockets."""
    if isinstance(online, Unknown):
        return online, online
    cores: set[tuple[object, ...]] = set()
    for cpu in online:
        place = tuple(
            tree.number(f"{_CPUS}/cpu{cpu}/topology/{name}", root) for name in ("physical_package_id", "core_id")
        )
        if any(isinstance(number, Unknown) for number in place):
            missing = Unknown(f"{_CPUS}/cpu{cpu}/topology: not there")
            return missing, missing
        die = tree.number(f"{_CPUS}/cpu{cpu}/topology/die_id", root)
        cores.add((*place, die if isinstance(die, int) else 0))
    return len(cores), len({package for package, *_ in cores})


def _numa(root: Path) -> tuple[NumaNode, ...] | Unknown:
    base = "/sys/devices/system/node"
    nodes = sorted(int(name[4:]) for name in tree.names(base, root) if name[:4] == "node" and name[4:].isdecimal())
    if not nodes:
        return Unknown("the kernel knows no NUMA nodes")
    found = []
    for node in nodes:
        cpus = tree.text(f"{base}/node{node}/cpulist", root)
        memory: int | Unknown = Unknown(f"{base}/node{node}/meminfo names no MemTotal")
        for line in tree.lines(f"{base}/node{node}/meminfo", root):
            words = line.split()
            if "MemTotal:" in words and words[-2].isdecimal():
                memory = int(words[-2]) * 1024
        found.append(NumaNode(node=node, cpus="" if isinstance(cpus, Unknown) else cpus, memory_bytes=memory))
    return tuple(found)


def _policies(root: Path) -> list[str]:
    return [name for name in tree.names(f"{_CPUS}/cpufreq", root) if name.startswith("policy")]


def _frequency(name: str, root: Path) -> str | Unknown:
    policies = _policies(root)
    if not policies:
        return Unknown("no cpufreq driver: firmware or a hypervisor decides")
    return tree.text(f"{_CPUS}/cpufreq/{policies[0]}/{name}", root)


def _governors(root: Path) -> tuple[str, ...] | Unknown:
    found = [tree.text(f"{_CPUS}/cpufreq/{policy}/scaling_governor", root) for policy in _policies(root)]
    known = sorted({governor for governor in found if not isinstance(governor, Unknown)})
    return tuple(known) if known else Unknown("no cpufreq driver: firmware or a hypervisor decides")


def _turbo(root: Path) -> bool | Unknown:
    off = tree.flag(f"{_CPUS}/intel_pstate/no_turbo", root)
    if not isinstance(off, Unknown):
        return not off
    boost = tree.flag(f"{_CPUS}/cpufreq/boost", root)
    return Unknown("no driver shows it") if isinstance(boost, Unknown) else boost


def _deepest_idle(root: Path) -> IdleState | Unknown:
    base = f"{_CPUS}/cpu0/cpuidle"
    states = [
        IdleState(name=name, latency_us=latency)
        for state in tree.names(base, root)
        if tree.flag(f"{base}/{state}/disable", root) is not True
        and not isinstance(name := tree.text(f"{base}/{state}/name", root), Unknown)
        and not isinstance(latency := tree.number(f"{base}/{state}/latency", root), Unknown)
    ]
    return max(states, key=lambda state: state.latency_us) if states else Unknown("no cpuidle driver")


def _vulnerabilities(root: Path) -> tuple[tuple[str, ...] | Unknown, tuple[str, ...] | Unknown]:
    """Return the names of unmitigated vulnerabilities, and of those whose mitigation costs time."""
    base = f"{_CPUS}/vulnerabilities"
    states = {name: tree.text(f"{base}/{name}", root) for name in tree.names(base, root)}
    if not states:
        return Unknown(f"{base}: not there"), Unknown(f"{base}: not there")
    known = {name: state for name, state in states.items() if not isinstance(state, Unknown)}
    return (
        tuple(name for name, state in known.items() if "Vulnerable" in state),
        tuple(name for name, state in known.items() if "Mitigation" in state),
    )
