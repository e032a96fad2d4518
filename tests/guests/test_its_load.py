# SPDX-License-Identifier: Apache-2.0
"""`--its-load`: the load that a running guest has is measured on a scratch disk like its own."""

import re
import time
from pathlib import Path

import pytest
from tests.conftest import User
from tests.guests.loaded import JOB, loading

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]

XML = """<domain type='kvm'><name>virtune</name><vcpu>1</vcpu><devices>
<disk type='file' device='disk'><driver name='qemu' type='raw' cache='unsafe'/><source file='{image}'/>
<target dev='data' bus='virtio'/></disk></devices></domain>
"""

QUICK = ("--rig", "storage-daemon", "--rounds", "1", "--seconds", "100ms", "--ramp", "0")


@pytest.fixture
def nodes(tmp_path: Path) -> list[str]:
    """A disk with an image, which `--like` takes the storage of."""
    image = tmp_path / "image"
    image.write_bytes(bytes(64 * 1024**2))
    limits = "-object throttle-group,id=tg0,x-iops-total=300"
    return [*limits.split(), "-blockdev", f"file,node-name=f0,filename={image}",
            "-blockdev", "throttle,node-name=n0,throttle-group=tg0,file=f0"]  # fmt: skip


def test_what_a_guest_does_is_what_is_measured(user: User, tmp_path: Path, nodes: list[str]) -> None:
    job = JOB.replace("rw=randread", "rw=randrw\nrwmixread=70").replace("bs=4k", "bs=16k")
    with loading(tmp_path, nodes, job) as guest:
        vm = f"/proc/{guest.pid}/cmdline"
        asked = ("--like", vm, "--its-load", "--scratch", str(tmp_path))
        said = user.run("compare", "measure", *asked, *QUICK, "-v").stderr
        assert "leave one of them out" in user.run("tune", *asked, "--workload", "randread-4k", status=2).stderr
        for verb, *wrong in (
            ("measure", "--set", "disk.aoi=native"),
            ("sweep", "--loads", "x"),
            ("tune", "--vary", "x"),
        ):
            assert "looking at" not in user.run(verb, *wrong, *asked, status=2).stderr, "the load is looked at last"
    assert re.search(r"--workload +randrw-16k.*\(the VM of --like", said), said
    (workload,) = user.run("show", "last", "--json").json()["study"]["workloads"]
    (words,) = (one["options"] for one in workload["jobs"])
    assert (words["rw"], words["bs"]) == ("randrw", "16k")
    assert 60 <= int(words["rwmixread"]) <= 80
    assert 6 <= int(words["iodepth"]) <= 8, "the guest keeps eight in flight"


def test_a_fix_that_is_called_again_goes_on_under_the_load_that_it_saw(
    user: User, tmp_path: Path, nodes: list[str]
) -> None:
    """It was looked at anew, a little different each time, so that nothing measured was ever found again."""
    file = tmp_path / "virtune.xml"
    file.write_text(XML.format(image=tmp_path / "a.raw"))
    (tmp_path / "a.raw").touch()
    with loading(tmp_path, nodes, JOB):
        asked = ("fix", str(file), "--its-load", "--scratch", str(tmp_path), *QUICK)
        first = user.run(*asked)
        again = user.run(*asked)
        anew = user.run(*asked, "--again")
    assert "looking at the load" in first.stderr
    assert "measured before: " in again.stderr
    assert "its load as it was seen before: " in again.stderr
    assert "looking at the load" not in again.stderr
    assert "looking at the load" in anew.stderr


def test_an_idle_disk_and_a_vm_that_does_not_run_have_no_load(user: User, tmp_path: Path, nodes: list[str]) -> None:
    with loading(tmp_path, nodes, JOB.replace("runtime=600", "runtime=1")) as guest:
        time.sleep(3)  # its load of a second has ended
        command = Path(f"/proc/{guest.pid}/cmdline").read_bytes()
        said = user.run("compare", "measure", "--like", f"/proc/{guest.pid}/cmdline", "--its-load", status=3).stderr
        assert "read and wrote nothing for 10 s" in said
    gone = tmp_path / "gone.cmdline"
    gone.write_bytes(command.replace(b"guest=virtune", b"guest=nobody").replace(b"-name\0virtune", b"-name\0nobody"))
    said = user.run("compare", "measure", "--like", str(gone), "--its-load", status=3).stderr
    assert "nobody" in said, said
    assert "of the VM of --like" in user.run("compare", "measure", "--its-load", status=2).stderr
