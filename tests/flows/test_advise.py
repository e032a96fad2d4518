# SPDX-License-Identifier: Apache-2.0
"""What is changed by name is audited before it is shown: nobody writes a known fault without being told."""

import pytest

from virtune.advise.audit import rules
from virtune.cli.common.changing import advice_text
from virtune.dialects.libvirt.domain import read_domain
from virtune.flows.domains.advise import Wish, advise, advise_all, read_turn
from virtune.flows.domains.domains import FoundDomain
from virtune.model.domain import SettingChange
from virtune.model.errors import PlanError
from virtune.model.finding import Advice, Finding, HostView, Running, Seen, Subject
from virtune.model.knob import Risk
from virtune.model.reason import Reason

XML = b"""<domain type='kvm'><name>g</name><vcpu>2</vcpu><devices>
<disk type='file' device='disk'><driver name='qemu' type='raw' cache='%s' io='threads'/>
<source file='/g.raw'/><target dev='vda' bus='virtio'/></disk></devices></domain>"""


def advised(wish: str, *, qemu: tuple[int, ...] | None, cache: bytes = b"none") -> Advice:
    text = XML % cache
    subject = Subject(domain=read_domain(text), host=HostView(qemu=qemu))
    return advise(FoundDomain(origin="g.xml", text=text, subject=subject), Wish(turns=(read_turn(wish),)))


@pytest.mark.parametrize("qemu", [(7, 1, 0), (10, 1, 3)])
def test_io_uring_on_a_qemu_that_hangs_with_it_is_warned_of(qemu: tuple[int, ...]) -> None:
    advice = advised("disk.aio@vda=io_uring", qemu=qemu)
    (warning,) = advice.warnings
    assert warning.text.startswith(f"R14 vda: io=io_uring on virtio under QEMU {qemu[0]}.{qemu[1]}")
    page = advice_text("g", advice).split("\n")
    assert page.index(f"  warning: {warning.text}") < next(i for i, line in enumerate(page) if line.startswith("---"))


@pytest.mark.parametrize("qemu", [None, (9, 2, 0)])
def test_where_nothing_speaks_against_it_nothing_is_said(qemu: tuple[int, ...] | None) -> None:
    assert advised("disk.aio@vda=io_uring", qemu=qemu).warnings == ()


def test_what_was_there_before_is_no_warning_of_the_change() -> None:
    assert advised("disk.cache@vda=unsafe", qemu=None).warnings[0].text.startswith("R01 vda: ")
    assert advised("disk.discard@vda=unmap", qemu=None, cache=b"unsafe").warnings == ()


def test_what_no_setting_fixes_and_what_cannot_be_written_have_codes() -> None:
    text = XML % b"none"
    found = FoundDomain(origin="g.xml", text=text, subject=Subject(domain=read_domain(text)))
    rule = next(one for one in rules() if one.id == "R23")

    def finding(*turns: SettingChange) -> Finding:
        seen = Seen(seen="5 images below", advice="commit them", turns=turns)
        return Finding(rule=rule, domain="g", uuid=None, at="vda", line=1, seen=seen, takes=None, risk=Risk.NONE)

    by_hand, refused = finding(), finding(SettingChange(knob="disk.cluster_size", at="vda", value="64k"))
    one, other = advise(found, Wish(rules=("R23",)), [by_hand, refused]).left
    assert (one.rule, one.at, one.why.reason) == ("R23", "vda", Reason.NO_SETTING)
    assert one.text == "R23 vda: 5 images below; commit them"
    assert other.why.reason is Reason.NOT_WRITABLE
    assert "cannot be written into a libvirt domain" in other.text


def test_a_limit_that_only_the_running_vm_has_is_said_where_a_change_of_the_configuration_does_not_reach_it() -> None:
    text = XML % b"none"
    live = read_domain(text.replace(b"<target", b"<iotune><total_iops_sec>150</total_iops_sec></iotune><target"))
    running = Running(state="running", reason="", live=live)
    found = FoundDomain(origin="g.xml", text=text, subject=Subject(domain=read_domain(text), running=running))
    (left,) = advise(found, Wish(turns=(read_turn("disk.throttle_iops@vda="),))).left
    assert (left.at, left.why.reason) == ("vda", Reason.LIMIT_IS_LIVE)
    assert left.text.startswith("vda: total_iops_sec=150 is on the running VM alone")
    assert advise(found, Wish(turns=(read_turn("disk.cache@vda=none"),))).left == ()
    assert advise(found, Wish(turns=(read_turn("disk.throttle_iops@vda=9"),))).left == (), "a live change lifts it"


def test_a_setting_of_a_disk_is_for_the_vms_that_have_it() -> None:
    texts = {"a": XML % b"none", "b": (XML % b"none").replace(b"vda", b"vdb").replace(b">g<", b">h<")}
    both = [
        FoundDomain(origin=name, text=text, subject=Subject(domain=read_domain(text))) for name, text in texts.items()
    ]

    def asked(*turns: str) -> list[tuple[int, list[str]]]:
        found = advise_all(both, Wish(turns=tuple(map(read_turn, turns))))
        return [(len(advice.turns), [one.text for one in advice.left]) for _, advice in found]

    assert asked("disk.aio@vdb=native") == [(0, ["vdb: there is no such disk"]), (1, [])]
    assert asked("disk.aio@vdb=native", "iothread.count=2") == [(1, ["vdb: there is no such disk"]), (2, [])]
    with pytest.raises(PlanError, match="g: there is no disk 'vdc' here") as refused:
        asked("disk.aio@vdc=native")
    assert refused.value.hint == "its disks: vda"
