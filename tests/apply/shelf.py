# SPDX-License-Identifier: Apache-2.0
"""A libvirt in memory with one domain: it keeps what it is given, does what it is told, and can misbehave."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from virtune.virsh import DumpedDomain, LibvirtRefused, Virsh

UUID = "0e1f2a3b-0000-4000-8000-00000000c0de"

WEB = f"""<domain type='kvm'>
  <name>web</name>
  <uuid>{UUID}</uuid>
  <memory unit='MiB'>64</memory>
  <vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type><boot dev='hd'/></os>
  <on_poweroff>destroy</on_poweroff>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='unsafe'/>
      <source file='/srv/web.raw'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='writeback'/>
      <source file='/srv/data.raw'/>
      <target dev='vdb' bus='virtio'/>
    </disk>
  </devices>
</domain>
"""


@dataclass
class Shelf(Virsh):
    """The domain's XML as it starts next and as it runs (None: it is off), and what was said so far.

    `refused` are commands that fail, `rewritten` is what it makes of a definition, `seen` is called before each
    command.
    """

    xml: str = WEB
    live: str | None = None
    state_word: str = "running"
    uri: str = "shelf:///"
    said: list[tuple[str, ...]] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    answers: dict[str, str] = field(default_factory=dict)
    rewritten: Callable[[str], str] = str
    seen: Callable[[tuple[str, ...]], object] = tuple

    def __post_init__(self) -> None:
        self._words = ["true"]

    def run(self, *words: str, ok: tuple[int, ...] = (0,)) -> str:
        self.seen(words)
        self.said.append(words)
        if words[0] in self.refused:
            raise LibvirtRefused(f"libvirt refused `{words[0]}`: because")
        match words[0]:
            case "define":
                self.xml = self.rewritten(Path(words[1]).read_text())
            case "domstate":
                return f"{self.state_word if self.live is not None else 'shut off'}\n"
            case "shutdown" | "destroy":
                self.live = None
            case "start":
                self.live, self.state_word = self.xml, "paused" if "--paused" in words else "running"
            case "resume":
                self.state_word = "running"
        return self.answers.get(words[0], "")

    def dump(self, uuids: Sequence[str], *, secrets_too: bool = False) -> tuple[DumpedDomain, ...]:
        state = self.run("domstate", *uuids).strip()
        return (DumpedDomain(uuid=UUID, inactive=self.xml, live=self.live, state=state, reason=""),)

    def verbs(self) -> list[str]:
        """What it was told, without what only asks."""
        asking = ("domstate", "domstats", "domfsinfo", "dominfo", "list", "qemu-agent-command")
        return [words[0] for words in self.said if words[0] not in asking]
