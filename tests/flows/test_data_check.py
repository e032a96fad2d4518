# SPDX-License-Identifier: Apache-2.0
"""Whether an arm keeps what is written to it is checked before it is measured: through it, and outside of it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from virtune.bench.scratch import difference_outside
from virtune.cli import run
from virtune.fio.generator import Clients
from virtune.fio.job import Step, data_job, difference_in, regions_of
from virtune.model.stack import Disk, FileTarget, Stack, VhostUserTarget
from virtune.shell import run as run_command

MIB = 1024**2
MARK = "0badcafe"
SEED = 7
FIO = Clients(engines=frozenset({"io_uring", "psync"}))


def words_of(step: Step, target: FileTarget | VhostUserTarget, clients: Clients = FIO) -> list[str]:
    return data_job(step, target, mark=MARK, clients=clients, seed=SEED)[0].text.splitlines()


def test_a_pattern_that_follows_from_its_place_is_written_flushed_and_looked_for() -> None:
    target = FileTarget(path="/disk", size_bytes=64 * MIB)
    written, read, after = (words_of(step, target) for step in ("write", "read", "refill"))
    for words in (written, read):
        assert words[1:4] == ["[global]", "verify=pattern", f'verify_pattern="{MARK}"%o']
        assert "verify_fatal=1" in words
        assert not any(word.startswith(("runtime", "time_based", "norandommap")) for word in words), "all of it, once"
    assert written.count("end_fsync=1") == 3
    assert "do_verify=0" in written, "it is read by a process that has not written it"
    assert not any(word.startswith("verify") for word in after)
    assert written.count("rw=write") == after.count("rw=write") == read.count("rw=read") == 3


def test_fio_does_it_by_an_engine_that_reaches_the_end() -> None:
    all_of_them = Clients(engines=frozenset({"io_uring", "libaio", "psync"}))
    for step in ("write", "read", "refill"):
        found = words_of(step, FileTarget(path="/disk", size_bytes=64 * MIB), all_of_them)
        assert {word for word in found if word.startswith("ioengine=")} == {"ioengine=libaio"}


def test_each_disk_and_each_queue_is_checked() -> None:
    two = FileTarget(path="/disk", more=("/other",), size_bytes=64 * MIB)
    assert sum(word.startswith("filename=") for word in words_of("write", two)) == 6
    narrow = VhostUserTarget(socket="/s", size_bytes=64 * MIB)
    with_blkio = Clients(engines=frozenset({"libblkio"}))
    assert "[end]" not in words_of("write", narrow, with_blkio), "fio gives each job a queue"
    ours = words_of("write", narrow, Clients(engines=frozenset(), installed=True))
    assert {"[begin]", "[end]", "verify=pattern"} <= set(ours)
    assert "verify_fatal=1" not in ours


@pytest.mark.parametrize("size", [8 * MIB, 64 * MIB, 64 * MIB + 4096, 1024 * MIB])
def test_the_parts_are_apart_and_within_the_disk(size: int) -> None:
    for seed in range(20):
        places = sorted((one for part in regions_of(size, seed) for one in part.each()), key=lambda one: one.offset)
        ends = [one.offset + one.size for one in places]
        assert all(end <= after.offset for end, after in zip(ends, places[1:], strict=False)), "they are apart"
        assert size - 64 * 1024 < ends[-1] <= size
        assert places[0].offset == 0


@pytest.mark.parametrize("size", [MIB, 8 * MIB, 64 * MIB, 1024 * MIB + 4096, 2**40])
def test_what_is_lost_in_one_piece_is_always_found_if_it_is_a_32nd_of_the_disk(size: int) -> None:
    chance = Random(size)
    for seed in range(200):
        places = [one for part in regions_of(size, seed) for one in part.each()]
        length = size // chance.choice([3, 8, 32])
        begin = chance.randrange(size - length)
        assert any(one.offset < begin + length and begin < one.offset + one.size for one in places), (begin, length)


def test_blocks_lost_here_and_there_are_found_as_often_as_is_said() -> None:
    chance, found, many = Random(1), 0, 400
    regions = regions_of(1024 * MIB, SEED)
    blocks = sum(region.places * region.size // region.block for region in regions)
    assert blocks == 32 * 96 + 1024 + 128
    for _ in range(many):
        found += any(chance.random() < 0.001 for _ in range(blocks))
    assert found / many > 0.96


def test_a_place_that_differs_is_told_from_a_load_that_failed() -> None:
    of_fio = "pattern: verify failed at file /disk offset 40960, length 84523 (requested block: offset=40960)"
    assert difference_in(of_fio) == "byte 40960"
    assert difference_in("error: pattern: verify failed at offset 8192") == "byte 8192"
    assert difference_in("fio: verify type mismatch (25190 media, 18 given)") is not None
    assert difference_in("fio: io_u error on file /disk: Input/output error: read offset=0") is None


@pytest.mark.parametrize("harm", ["lost", "torn", "stale"])
@pytest.mark.parametrize("seed", range(4))
def test_what_an_image_lost_tore_or_kept_of_an_earlier_write_is_found(harm: str, seed: int, tmp_path: Path) -> None:
    """A third of the image is lost at a place drawn by chance, or one of the checked blocks is torn or stale."""
    chance, image, size = Random(f"{harm} {seed}"), tmp_path / "image", 24 * MIB
    regions = regions_of(size, seed)
    blocks = [one for region in regions for place in region.each() for one in place.blocks(MARK)]
    image.write_bytes(bytes(size))
    with image.open("r+b") as file:
        for offset, block in blocks:
            file.seek(offset)
            file.write(block)
        file.flush()
        assert difference_outside(Stack(), [image], regions, MARK, tmp_path) is None
        offset, block = chance.choice(blocks)
        if harm == "lost":
            file.seek(chance.randrange(size - size // 3))
            file.write(bytes(size // 3))
        elif harm == "torn":
            file.seek(offset + chance.randrange(1, len(block) // 512) * 512)
            file.write(bytes(512))
        else:
            file.seek(offset)
            file.write(block.replace(MARK.encode(), b"01d01d01"))
    found = difference_outside(Stack(), [image], regions, MARK, tmp_path)
    assert found is not None
    assert harm == "lost" or found == f"byte {offset} of {image}"


@pytest.mark.real
@pytest.mark.parametrize("kind", ["raw", "qcow2"])
def test_one_byte_that_differs_in_an_image_is_found_outside_of_the_arm(kind: str, tmp_path: Path) -> None:
    raw, image, regions = tmp_path / "raw", tmp_path / "image", regions_of(16 * MIB, SEED)
    stack = Stack(disk=Disk(format="qcow2" if kind == "qcow2" else "raw"))
    raw.write_bytes(bytes(16 * MIB))
    for changed in (None, 70_000, regions[1].offset + 70_000):
        with raw.open("r+b") as file:
            for place in (one for region in regions for one in region.each()):
                for offset, block in place.blocks(MARK):
                    file.seek(offset)
                    file.write(block)
            if changed is not None:
                file.seek(changed)
                file.write(b"?")
        run_command(["qemu-img", "convert", "-f", "raw", "-O", kind, str(raw), str(image)], timeout_seconds=60)
        found = difference_outside(stack, [image], regions, MARK, tmp_path)
        size = regions[0 if changed == 70_000 else 1].block
        assert found == (None if changed is None else f"byte {changed // size * size} of {image}")


PLACE = ("--check-data", "--span", "16M", "--rounds", "1", "--seconds", "100ms", "--ramp", "0", "-q")


@pytest.mark.real
def test_an_arm_shows_that_it_keeps_its_data_and_what_the_check_wrote_does_not_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("--scratch", str(tmp_path / "scratch"), "--store", str(tmp_path / "store"))
    assert run(["compare", "measure", *PLACE, *place, "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["arms"][0]["in_force"]
    (check,) = [one for one in checks if one["setting"] == "data"]
    assert (check["asked"], check["found"]) == ("kept", "kept")
    assert "16 MiB of 16 MiB at 34 places (seed " in check["proof"]
    assert "outside of it" in check["proof"]
    (image,) = (tmp_path / "scratch").glob("*.raw")
    first = image.read_bytes()[:4096]
    assert len(set(first)) > 100, "a pattern would compress"


@pytest.mark.real
def test_what_the_check_wrote_does_not_stay_where_it_was_not_kept_either(tmp_path: Path) -> None:
    place = ("--scratch", str(tmp_path / "scratch"), "--store", str(tmp_path / "store"))
    # a QEMU whose FUSE export keeps its data passes, and the pattern must be gone in either case
    assert run(["compare", "measure", *PLACE, *place, "--set", "disk.export=fuse", "--workload", "randread-4k"]) in (
        0,
        1,
    )
    (image,) = (tmp_path / "scratch").glob("*.raw")
    with image.open("rb") as file:
        blocks = [file.read(4096) for _ in range(64)]
    assert min(len(set(block)) for block in blocks) > 100, "a pattern would compress"


@pytest.mark.real
def test_a_disk_that_forgets_is_found_and_nothing_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("--scratch", str(tmp_path / "scratch"), "--store", str(tmp_path / "store"))
    assert run(["compare", "measure", *PLACE, *place, "--set", "disk.backend=null-co"]) == 1
    said = capsys.readouterr()
    # the two parts are read at once, so either may be found first
    assert re.search(r"arm 'threads' does not keep its data: byte \d+ of its disk, read back through it", said.err)
    assert not said.out
    target = tmp_path / "mine"
    target.write_bytes(bytes(range(256)) * (64 * 1024))
    assert run(["compare", "measure", *PLACE, *place, "--rig", "metal", "--target", str(target)]) == 3
    assert f"--allow-write-to {target}" in capsys.readouterr().err
    assert target.read_bytes()[:256] == bytes(range(256))


def said_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], *, status: int = 1) -> str:
    place = ("--scratch", str(tmp_path / "scratch"), "--store", str(tmp_path / "store"))
    assert (
        run(["compare", "measure", *PLACE, *place, "--set", "disk.aio=threads", "--workload", "randread-4k"])
        == status
    )
    said = capsys.readouterr()
    assert bool(said.out) is not bool(status)
    return said.err


@pytest.mark.real
@pytest.mark.parametrize(
    ("skip", "words"),
    [(0, "nothing was measured"), (2 * 16 * MIB, "it kept its data before the measurement: trust no figure of it")],
)
def test_a_daemon_that_drops_writes_somewhere_is_found_before_and_after_the_measurement(
    skip: int, words: str, lying: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It loses a 32nd of its disk, at a place drawn by chance; with `skip` only after the check and its refill."""
    begin = Random(skip).randrange(16 * MIB - MIB // 2)
    lying(**{"from": begin, "to": begin + MIB // 2, "skip": skip})
    said = said_of_it(tmp_path, capsys)
    assert "does not keep its data: byte" in said
    assert words in said


@pytest.mark.real
@pytest.mark.parametrize("how", ["lost", "torn", "late", "exchanged"])
def test_a_daemon_that_lies_of_one_write_in_a_hundred_at_random_places_is_found(
    how: str, lying: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lying(how=how, often=10, seed=sum(how.encode()))
    assert "does not keep its data: byte" in said_of_it(tmp_path, capsys)


@pytest.mark.real
def test_the_daemon_that_could_lie_and_does_not_keeps_its_data(
    lying: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lying(often=0)
    said_of_it(tmp_path, capsys, status=0)
