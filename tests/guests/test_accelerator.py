# SPDX-License-Identifier: Apache-2.0
"""KVM by trial: the result is cached where it lasts, tried again where it may pass."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import bare_guest

from virtune import shell
from virtune.bench.appliance.build import Appliance
from virtune.bench.qemu.machine import PROGRAM, Accelerator, accelerator_for, kvm_kind
from virtune.model.remark import KVM_WITHOUT_HARDWARE

NO_MEMORY = "cannot set up guest memory 'ram': Cannot allocate memory"


class Host:
    """A host whose QEMU is a script that notes each start, with a /dev/kvm that opens."""

    def __init__(self, place: Path, warden: shell.Warden, appliance: Appliance) -> None:
        self.cache = place / "cache"
        self.device = place / "kvm"
        self.device.touch()
        self._starts = place / "starts"
        self._program = place / "qemu"
        self._of = appliance, warden

    def qemu(self, script: str) -> None:
        self._program.write_text(f"#!/bin/sh\necho >>{self._starts}\n{script}\n")
        self._program.chmod(0o755)

    def tried(self, *, again: bool = False, seconds: float = 10.0) -> tuple[Accelerator, int]:
        """What guests run on, and how often QEMU was started for that."""
        self._starts.write_text("")
        found = accelerator_for(
            *self._of, self.cache, emulator=str(self._program), again=again, device=self.device, trial_seconds=seconds
        )
        return found, self._starts.read_text().count("\n")


@pytest.fixture
def host(tmp_path: Path, warden: shell.Warden) -> Host:
    none = tmp_path / "none"
    appliance = Appliance(
        key="abc", kernel=none, initramfs=none, release="9.9", modules=frozenset(), built_in=frozenset(),
        agent=False, size_bytes=0, made="",
    )  # fmt: skip
    return Host(tmp_path, warden, appliance)


def test_a_qemu_that_trips_over_kvm_is_not_tried_again_until_it_is_asked_for(host: Host) -> None:
    host.qemu("echo 'kvm_buf_set_msrs: Assertion failed' >&2; kill -ABRT $$")
    found, starts = host.tried()
    assert (found.name, found.tried, starts) == ("tcg", True, 2), "with the host's CPU, and with one feature less"
    assert "kvm_buf_set_msrs: Assertion failed" in found.why
    assert host.tried() == (found, 0)
    assert host.tried(again=True)[1] == 2
    (host.cache / "accelerators.json").write_text('{"x": [')
    assert host.tried()[1] == 2, "what cannot be read is tried"


def test_the_kind_of_kvm_is_told_by_what_the_cpus_have() -> None:
    assert kvm_kind("flags\t\t: fpu sse2 hypervisor\n") == KVM_WITHOUT_HARDWARE
    assert kvm_kind("flags\t\t: fpu vmx hypervisor\n") == "nested KVM"
    assert kvm_kind("flags\t\t: fpu svm\n") == "KVM with hardware virtualization"


@pytest.mark.parametrize("script", [f'echo "{NO_MEMORY}" >&2; exit 1', "kill -KILL $$", "kill -TERM $$"])
def test_what_may_pass_is_tried_again_by_the_next_run(host: Host, script: str) -> None:
    host.qemu(script)
    found, starts = host.tried()
    assert (found.name, found.tried, starts) == ("tcg", True, 1)
    assert found.why.endswith("that may pass, so the next run tries again")
    assert ("Cannot allocate memory" in found.why) is (NO_MEMORY in script)
    assert host.tried()[1] == 1
    assert not host.cache.exists()


def test_without_kvm_nothing_is_tried(host: Host) -> None:
    host.qemu("exit 1")
    host.device.unlink()
    found, starts = host.tried()
    assert (found.kvm, found.tried, starts) == (False, False, 0)
    assert found.why == f"there is no {host.device}"


@pytest.mark.real
@pytest.mark.long(always="what was tried is remembered in each run, above, and a guest hangs in test_rig.py")
@pytest.mark.xdist_group("guests")
def test_a_guest_that_comes_up_or_hangs_is_remembered(
    tmp_path: Path, warden: shell.Warden, appliance: Appliance
) -> None:
    host = Host(tmp_path, warden, appliance)
    swap = 'for word; do shift; [ "$word" != kvm ] || word=tcg,thread=multi; [ "$word" != host ] || word=max; '
    swap += 'set -- "$@" "$word"; done'
    host.qemu(f'{swap}; exec {shutil.which(PROGRAM)} "$@"')
    found, starts = host.tried(seconds=90.0)  # it boots in 3 s, and in 19 s where others have the CPUs
    assert (found.name, starts) == ("kvm", 1), found.why
    assert found.why.startswith("a test guest started under KVM in ")
    assert host.tried() == (found, 0)
    # another program of that name is another question; its vCPUs never begin
    host.qemu(f'{swap}; exec {shutil.which(PROGRAM)} -S "$@"')
    hung, starts = host.tried(seconds=2.0)
    assert (hung.name, starts) == ("tcg", 1)
    assert "the guest did not come up within 2 s" in hung.why
    assert host.tried() == (hung, 0)
    assert len(json.loads((host.cache / "accelerators.json").read_text())) == 2


@pytest.mark.real
def test_the_demo_has_a_vm_where_kvm_runs_one_and_a_sentence_elsewhere(tmp_path: Path) -> None:
    bare_guest()
    program = tmp_path / "bin" / PROGRAM
    program.parent.mkdir()
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def demo(script: str) -> tuple[int, str]:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        asked = [sys.executable, "-c", "from virtune.demo import main; raise SystemExit(main())", "--vm"]
        ran = subprocess.run(asked, env=env, capture_output=True, text=True, timeout=90)
        tries, _, answer = (ran.stdout + ran.stderr).strip().partition("\n")
        assert tries == "trying whether KVM runs a test guest here, for at most 10 s..."
        return ran.returncode, answer

    code, said = demo("echo no KVM for you >&2; exit 1")
    assert code == 1
    words = "there is no /dev/kvm" if not Path("/dev/kvm").exists() else "(no KVM for you)"
    assert said.startswith("no VM is among the arms: ")
    assert words in said
    code, said = demo(f'exec {shutil.which(PROGRAM, path=os.environ["PATH"])} "$@"')
    assert said.startswith(
        ("no VM is among the arms: ", "a VM is one of the arms: a test guest started under KVM")[code == 0]
    )
