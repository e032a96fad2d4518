# SPDX-License-Identifier: Apache-2.0
"""Arms whose images lie in other directories, or that load other devices: two storages, side by side in one run."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import CALM, User

from virtune.model.contradictions import contradictions
from virtune.model.stack import Stack

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("loop devices")]

SHORT = ("--rounds", "2", "--seconds", "0.3", "--ramp", "0.1", "--span", "16M", *CALM)


@contextlib.contextmanager
def attached(backing: Path, size: int) -> Iterator[str]:
    """A block device of `size` bytes, each of them written."""
    backing.write_bytes(bytes(range(256)) * (size // 256))
    words = ["losetup", "--find", "--show", str(backing)]
    device = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[tuple[str, str]]:
    with attached(tmp_path / "one", 64 * 2**20) as one, attached(tmp_path / "two", 64 * 2**20) as two:
        yield one, two


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A filesystem on a disk of its own: where it is mounted, and the name of the disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        backing, place = Path(memory) / "disk", tmp_path / "mounted"
        place.mkdir()
        with backing.open("wb") as file:
            file.truncate(160 * 1024**2)
        words = ["losetup", "--find", "--show", str(backing)]
        device = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
        try:
            subprocess.run(["mkfs.ext4", "-q", "-m", "0", device], check=True)
            subprocess.run(["mount", device, place], check=True)
            yield place, Path(device).name
        finally:
            subprocess.run(["umount", "--lazy", place], check=False)
            subprocess.run(["losetup", "--detach", device], check=True)


@pytest.mark.parametrize("rig", ["metal", "storage-daemon"])
def test_two_storages_are_arms_of_one_run(rig: str, user: User, mounted: tuple[Path, str]) -> None:
    place, disk = mounted
    words = ("compare", "--rig", rig, "--arm", "here:", "--arm", f"there:disk.place={place}", "--json")
    ran = user.run(*words, *SHORT)
    assert f"disk.place={place}: ext4 on /dev/{disk} ({disk})" in ran.stderr
    checks = {arm["name"]: {one["setting"]: one for one in arm["in_force"]} for arm in ran.json()["arms"]}
    assert "disk.place" not in checks["here"]
    assert (checks["there"]["disk.place"]["agrees"], checks["there"]["disk.place"]["found"]) == (True, str(place))
    assert f"the load is on {place}/" in checks["there"]["disk.place"]["proof"]
    used = {arm["name"]: arm["rounds"][0]["measurement"]["remarks"] for arm in ran.json()["arms"]}
    assert {name: [one["id"] for one in found if one["id"] == "no-device"] for name, found in used.items()} == {
        "here": [],
        "there": [],
    }


def test_an_arm_beside_a_target_lies_in_its_directory_too(user: User, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    target = tmp_path / "target.raw"
    target.write_bytes(bytes(range(256)) * 2**16)
    words = ("compare", "--rig", "metal", "--target", str(target), "--arm", "target:", "--json")
    arms = ("--arm", "scratch:disk.place=scratch", "--arm", f"there:disk.place={tmp_path / 'other'}/.")
    found = user.run(*words, *arms, *SHORT).json()["arms"]
    seen = {arm["name"]: [one["proof"] for one in arm["in_force"] if one["setting"] == "disk.place"] for arm in found}
    assert seen["target"] == []
    assert seen["scratch"][0].startswith(f"the load is on {user.scratch}/")
    assert seen["there"][0].startswith(f"the load is on {tmp_path / 'other'}/")
    assert target.read_bytes() == bytes(range(256)) * 2**16


@pytest.mark.parametrize(
    ("arm", "status", "said"),
    [
        ("disk.place=elsewhere", 2, "is neither target nor scratch nor the absolute path of a directory or device"),
        ("disk.place=/srv,disk.backend=null-co", 2, "is where an image lies, and disk.backend=null-co has none"),
        ("disk.place=/proc", 3, "cannot use /proc for scratch files"),
        ("disk.place=/dev/null", 3, "/dev/null is neither a file nor a block device"),
        ("disk.place=/dev/not/there", 3, "cannot use /dev/not/there: No such file or directory"),
        ("disk.place=/dev/sda,disk.backend=null-co", 2, "is where an image lies, and disk.backend=null-co has none"),
        ("disk.place=/dev/shm/not/mounted", 3, "/dev/shm/not/mounted, and there is no such directory"),
        ("disk.place=/not/mounted", 3, "are to lie in /not/mounted, and there is no such directory"),
    ],
)
def test_a_place_where_no_image_can_lie_is_refused_in_a_sentence(
    arm: str, status: int, said: str, user: User
) -> None:
    ran = user.run("compare", "--arm", "here:", "--arm", f"there:{arm}", *SHORT, status=status)
    assert said in ran.stderr
    assert not Path("/not").exists()


def test_two_names_of_one_directory_are_no_two_storages(user: User, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").symlink_to("one")
    vary = f"disk.place={tmp_path / 'one'},{tmp_path / 'two'}"
    ran = user.run("compare", "--rig", "metal", "--vary", vary, *SHORT, status=3)
    assert f"{tmp_path / 'two'} are one directory" in ran.stderr


def test_a_directory_that_others_may_exchange_is_refused_by_its_knob(user: User, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    ran = user.run("compare", "--set", f"disk.place={tmp_path / 'open'}", "--vary", "disk.aio=threads,native", *SHORT,
                   status=3)  # fmt: skip
    assert "disk.place (guests.spread) names a directory of yours" in ran.stderr


@pytest.mark.parametrize("there", [True, False])
def test_the_dry_run_names_the_directories_and_looks_for_them(there: bool, user: User, tmp_path: Path) -> None:
    place = tmp_path / "place"
    if there:
        place.mkdir()
    words = ("compare", "--arm", "here:", "--arm", f"there:disk.place={place}", "--dry-run")
    ran = user.run(*words, *SHORT, status=0 if there else 3)
    assert (f"; in {place} where an arm names it" in ran.stdout) is there
    assert (f"are to lie in {place}, and there is no such directory" in ran.stderr) is not there


def test_a_directory_that_no_arm_can_name_is_refused() -> None:
    assert "a comma ends a setting" in contradictions(Stack(place="/srv/a,b"))[0]


def test_the_scratch_directory_under_another_name_is_the_same_images(user: User) -> None:
    words = ("compare", "--rig", "metal", "--arm", "here:", "--arm", f"there:disk.place={user.scratch}/.", "--json")
    ran = user.run(*words, *SHORT)
    assert ", the same filesystem as the scratch directory" in ran.stderr
    (trial, *_) = ran.json()["arms"][1]["rounds"]
    assert trial["measurement"] is not None


@pytest.mark.parametrize("rig", ["metal", "storage-daemon"])
def test_two_devices_are_arms_of_one_run(rig: str, user: User, devices: tuple[str, str]) -> None:
    one, two = devices
    arms = ("--arm", f"one:disk.place={one}", "--arm", f"two:disk.place={two}", "--arm", "image:disk.place=scratch")
    ran = user.run("compare", "--rig", rig, *arms, "--json", *SHORT)
    checks = {arm["name"]: {one["setting"]: one for one in arm["in_force"]} for arm in ran.json()["arms"]}
    assert [checks[arm]["disk.place"]["found"] for arm in ("one", "two", "image")] == [one, two, "scratch"]
    assert all(found["disk.place"]["agrees"] for found in checks.values())
    page = " ".join(user.run("show", "--verbose").stdout.split())
    assert f"targets {one}, {two}" in page


def test_each_device_is_written_to_only_where_it_is_named_itself(
    user: User, devices: tuple[str, str], tmp_path: Path
) -> None:
    one, two = devices
    arms = ("--arm", f"one:disk.place={one}", "--arm", f"two:disk.place={two}")
    words = ("compare", "--rig", "metal", *arms, "--workload", "randwrite-4k", *SHORT)
    for named in ((), ("--allow-write-to", one)):
        ran = user.run(*words, *named, status=3)
        refused = two if named else one
        assert f"the load writes to {refused}, which virtune did not create" in ran.stderr
        assert f"--allow-write-to {refused}" in ran.stderr
    before = bytes(range(256)) * 2**18
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes() == before
    allowed = [f"--allow-write-to={name}" for name in devices]
    assert user.run(*words, "--dry-run", *allowed).stdout.count("which is written to") == 2
    user.run(*words, *allowed)
    assert before not in ((tmp_path / "one").read_bytes(), (tmp_path / "two").read_bytes())


def test_two_names_of_one_device_are_no_two_storages(user: User, devices: tuple[str, str]) -> None:
    one, _ = devices
    words = ("compare", "--rig", "metal", "--target", one, "--arm", "target:", "--arm", f"other:disk.place={one}")
    ran = user.run(*words, *SHORT, status=3)
    assert f"{one} and {one} are one disk" in ran.stderr


def test_devices_are_compared_over_as_much_of_each(user: User, devices: tuple[str, str], tmp_path: Path) -> None:
    one, _ = devices
    with attached(tmp_path / "small", 12 * 2**20) as small:
        words = ("compare", "--rig", "metal", "--arm", f"one:disk.place={one}", "--arm", f"small:disk.place={small}")
        ran = user.run(*words, *SHORT, status=3)
        assert "64 MiB of one arm's disk and 12 MiB of another's would be loaded" in ran.stderr
        assert f"`--span {12 * 2**20}` is what all of them have" in ran.stderr
        user.run(*words, "--scratch", str(user.scratch), "--span", str(12 * 2**20), "--dry-run", exactly=True)


@pytest.mark.parametrize(
    ("setting", "said"),
    [("disk.format=qcow2", "the only possible format is raw"), ("disk.during=backup", "disk.during copies")],
)
def test_a_device_has_no_qcow2_and_no_backup_beside_it(
    setting: str, said: str, user: User, devices: tuple[str, str]
) -> None:
    arms = ("--arm", "here:", "--arm", f"there:disk.place={devices[0]},{setting}")
    ran = user.run("compare", "--rig", "qemu", *arms, *SHORT, status=3)
    assert said in ran.stderr
    assert "a target is used as it is" in ran.stderr
