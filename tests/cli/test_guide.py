# SPDX-License-Identifier: Apache-2.0
"""Every command of the guide runs as its page says, on real disks, and prints what the page shows of it."""

import ast
import contextlib
import io
import random
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest
from tests.conftest import User, bare_guest, generator
from tests.guide import EXAMPLES, MEASURING, PAGES, Step, commands, documented, missing, steps, strings, verb_of
from tests.plan.vscsi_printouts import printout

from virtune.cli import VERBS, cli
from virtune.cli import run as main
from virtune.cli.common.progress import CarriedStudy, EstimatedError

CAPTURES = Path(__file__).parents[1] / "captures"


def shortened(step: Step) -> tuple[str, ...]:
    """Its words, with two rounds instead of the reader's six, and no disturbed trial repeated, where the page shows
    nothing of what they decide.

    The words as they stand are those of `test_every_command_is_one_that_virtune_takes`.
    """
    words = step.words
    if step.shown or "--rounds" not in words:
        return words
    place = words.index("--rounds") + 1
    return (*words[:place], "2", *words[place + 1 :], "--attempts", "1")


def runs(page: Path) -> list[Step]:
    """The steps of a page that are run here."""
    return [step for step in steps(page) if not step.needs_libvirt and not step.only_parsed]


MEASURED_INSTEAD = ("measure", "--rounds", "1", "--seconds", "300ms", "--span", "64M", "-q")
"""A study for what comes after a check that is not made: a check takes 10 s at least."""


def always(page: Path) -> list[Step]:
    """The steps of a page in each run: all that show something, and the measurements of the tutorial; those of other
    pages are typed nearly alike, and `make test-long` makes them.
    """
    found = []
    for step in runs(page):
        unseen = not step.shown and "--span" in step.words
        if unseen and verb_of(step.words) == "check":
            found.append(replace(step, words=MEASURED_INSTEAD))
        elif not unseen or page.stem == "tutorial":
            found.append(step)
    return found


def run(user: User, step: Step) -> str:
    scratches = {"--span", "--rig", "clean"} & {*step.words}  # in the tests' directory, which no other run holds
    place = ("--scratch", str(user.scratch)) if scratches else ()
    return user.run(*shortened(step), *place, exactly=True, status=step.status).stdout


def go_through(page_steps: list[Step], user: User) -> None:
    shutil.copytree(EXAMPLES, user.home, dirs_exist_ok=True)
    for step in page_steps:
        printed = run(user, step)
        assert missing(step.shown, printed) is None, f"{step.words}:\n{printed}"


@pytest.mark.real
@pytest.mark.parametrize("page", [page for page in PAGES if always(page)], ids=lambda page: page.stem)
def test_the_commands_of_a_page_do_what_the_page_says(page: Path, user: User) -> None:
    go_through(always(page), user)


@pytest.mark.real
@pytest.mark.long(always="the whole tutorial, what any page shows, and that virtune takes each command, above")
@pytest.mark.parametrize("page", [page for page in PAGES if always(page) != runs(page)], ids=lambda page: page.stem)
def test_every_command_of_a_page_does_what_the_page_says(page: Path, user: User) -> None:
    generator()
    bare_guest()
    go_through(runs(page), user)


class PlannedError(EstimatedError):
    """Ends a command that measures when all its preconditions hold, and nothing is made yet."""


NOT_EVERYWHERE = (
    "cannot reach libvirt", "failed to connect to the hypervisor", "`rbd` is not installed", "no IOMMU in use",
    "is no NVMe drive of this host's PCI bus", "there is no domain",
    "no server answers there", "host.scheduler would change for the VM", "host.scheduler cannot be set",
    "another virtune changes settings of this host", "host.* settings need root",
)  # fmt: skip
"""What a host may lack, so that a command that needs it is refused there, though not as wrong."""

READING = frozenset({"advise", "audit", "compare", "explain", "export", "import", "knobs", "list", "show"})
"""Verbs that end soon and change nothing of this host's: their commands run, on files and on a stored study."""

REFUSED = (1, 2, 3)
"""Any other exit code is a result."""


@pytest.fixture(scope="module")
def readers_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the commands name, and a store with a study."""
    place = tmp_path_factory.mktemp("reader")
    shutil.copytree(EXAMPLES, place, dirs_exist_ok=True)
    (place / "disk").write_bytes(random.Random(1).randbytes(2 << 20))
    one = next((EXAMPLES / "before").iterdir())
    for name in ("result", "before", "after", "monday", "tuesday"):
        shutil.copy(one, place / f"{name}.json")
    for name in ("monday", "tuesday", "bench-fio-output", "vmware", "kvm"):
        shutil.copytree(EXAMPLES / "before", place / name)
    for name in ("before.txt", "after.txt", "article.txt"):
        both = [(CAPTURES / "fio" / f"study1-{run}.txt").read_text() for run in ("before", "after")]
        (place / name).write_text("\n".join(both))
    (place / "vm.csv").write_text(printout({4096: 70}, {4096: 30}))
    (place / "plan.toml").write_text('[vary]\ndisk.aio = ["threads", "io_uring"]\n')
    ours = (place / "web1.xml").read_text().replace("'sda'", "'vda'")
    (place / "vm.xml").write_text(ours.replace("<devices>", "<iothreads>1</iothreads><devices>"))
    (place / "domains").mkdir()
    shutil.copy(place / "vm.xml", place / "domains")
    (place / "proxmox").mkdir()
    shutil.copy(CAPTURES / "proxmox" / "debian-scsi-single.conf", place / "proxmox" / "101.conf")
    store = ("--store", str(place / "results.sqlite"))
    small = (
        "--rounds",
        "1",
        "--seconds",
        "300ms",
        "--span",
        "64M",
        "--scratch",
        str(place / "scratch"),
        "-q",
        *store,
    )
    each = "name=each,rw=randread,bs=4k,number_ios=100,randseed=1"
    assert main(["compare", "--vary", "disk.aio=threads,io_uring", "--workload", each, *small]) == 0
    assert main(["show", "label", "--tag", "good", *store]) == 0
    assert main(["show", "export", "last", "--bundle", str(place / "study.zip"), *store]) == 0
    for name in ("kvm1.sqlite", "fleet/web1.sqlite"):
        (place / name).parent.mkdir(exist_ok=True)
        shutil.copy(store[1], place / name)
    return place


def parsed(words: tuple[str, ...], place: Path) -> frozenset[str] | None:
    """Return the options of a command whose words are taken to the end; None for one that only names a verb, or its
    options, which are then looked for.

    Raises ClickException with why the words are not taken.
    """
    command: click.Command = cli
    context, left = click.Context(cli), [*words]
    while isinstance(command, click.Group) and left and not left[0].startswith("-") and left[0] != "...":
        name, found, left = command.resolve_command(context, left)
        assert found is not None
        command, context = found, click.Context(found, parent=context, info_name=name)
    takes = {option: one for one in command.get_params(context) for option in one.opts}
    last = takes.get(left[-1]) if left else None
    if (
        all(word.startswith("--") for word in left)
        or "..." in left
        or (isinstance(last, click.Option) and not last.is_flag and not last.count)
    ):
        unknown = next((word for word in left if word.startswith("--") and word not in takes), None)
        if unknown is not None:
            raise click.NoSuchOption(unknown)
        return None
    with (
        contextlib.suppress(click.exceptions.Exit),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.chdir(place),
    ):
        command.make_context(words[0], left, parent=context.parent)
    return frozenset(takes)


def refusal(words: tuple[str, ...], place: Path) -> str | None:
    """Say why virtune does not take a command; None if it does, or only names a verb and its options.

    One that measures is planned and its preconditions are checked, up to where it would make something; one that
    reads is run.
    """
    try:
        options = parsed(words, place)
    except click.ClickException as error:
        return error.format_message()
    if options is None or verb_of(words) not in READING | MEASURING or "-" in words:
        return None
    if verb_of(words) == "export":  # which overwrites nothing
        for made in place.glob("*.zip"):
            made.unlink()
    for option, where in (("--store", "results.sqlite"), ("--scratch", "scratch")):
        if option in options and option not in words:
            words = (*words, option, str(place / where))
    reached: list[object] = []

    def planned(_: object, seconds: float | None) -> None:
        reached.append(seconds)
        raise PlannedError("planned")

    said_of_it, printed = io.StringIO(), io.TextIOWrapper(io.BytesIO())
    with contextlib.chdir(place), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said_of_it):
        status = main(list(words), carried=CarriedStudy(begin=lambda _: None, planned=planned))
    told = said_of_it.getvalue()
    if reached or status not in REFUSED or (status != 2 and any(why in told for why in NOT_EVERYWHERE)):
        return None
    return f"exit {status}: {told.partition('error: ')[2].strip()}"


def alone(words: tuple[str, ...], place: Path) -> str | None:
    """Say why virtune does not take a command in a copy of the reader's place, where no other was typed before."""
    with tempfile.TemporaryDirectory(dir=place.parent) as own:
        shutil.copytree(place, own, dirs_exist_ok=True, ignore=shutil.ignore_patterns("scratch"))
        return refusal(tuple(word.replace("PLACE", own) for word in words), Path(own))


@pytest.mark.real
@pytest.mark.parametrize("part", range(5))
def test_every_command_that_is_written_down_is_one_that_virtune_takes(part: int, readers_place: Path) -> None:
    generator()
    bare_guest()
    steps = documented()[part::5]
    refused = {step: why for step in steps if (why := alone(step.words, readers_place)) is not None}
    assert not refused, "\n".join(
        f"{step.page}: virtune {shlex.join(step.words)}\n    {why}" for step, why in refused.items()
    )


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every verb with its words."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in VERBS if command is cli else command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        if not found.hidden:
            yield from leaves(found, (*path, *name.split()))


def test_commands_of_every_verb_are_found_and_those_of_every_help() -> None:
    """What finds none would be content with all of them."""
    steps_found = documented()
    for words, command in leaves(cli):
        assert any(step.words[: len(words)] == words for step in steps_found), words
        examples = [line.strip() for line in (command.help or "").partition("Example")[2].splitlines()]
        here = {one for line in examples if line.startswith("virtune ") for one in commands(f"    {line}")}
        assert "Example" not in (command.help or "") or here, words
        assert here <= {step.words for step in steps_found}, words
    assert len(steps_found) > 300
    assert {step.page.partition("/")[0] for step in steps_found} >= {"docs", "src", "README.md", "CHANGELOG.md"}


BROKEN = (
    "measur --rig metal", "measure --rig mettal", "measure --rounds none", "measure --set disk.aio=fast",
    "measure --rig metal --set disk.cache=writeback", "compare --vary disk.aio=threads", "measure --colour",
    "compare --vary disk.aio=threads,native --at-load 401%", "sweep --rig metal --loads 0%", "tune --budget 0",
    "measure --rig qemu --set disks.count=2", "measure --rig qemu --set guests.spread=here --set disks.count=2",
    "measure --rig metal --workload randwrite-4k --target PLACE/disk", "study run io-engin",
    "study run datapath --n 4", "study run vmm-latency --target PLACE/disk", "compare one.json other.json",
    "explain nothing.json", "show last:x:y", "show last --trial 99", "fleet run -i hosts.txt --now check",
    "fleet staus", "advise --set disk.aio=fast vm.xml",
    "apply web1 --replugg vdb", "export last --bundel", "list --jsn", "knobs disk.speed",
)  # fmt: skip
"""A wrong verb, option, value, setting, contradiction, permission, file, study or trial; of groups and fleets too."""

PLANTED = (
    "```sh\nvirtune {}    # a remark\n```\n", "Text.\n\n    virtune {}\n\nText.", "Text `virtune {}` text.",
    "| a | Y | `virtune host probe`, `virtune {}` | b |", "    fio - | virtune {}\n", "    A=1 virtune {} > file\n",
)  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize("place", PLANTED, ids=range(len(PLANTED)))
def test_a_broken_command_is_found_wherever_it_is_written(place: str, readers_place: Path) -> None:
    chance = random.Random(place)
    for line in chance.sample(BROKEN, 6):
        refused = [alone(words, readers_place) for words in commands(place.format(line))]
        assert any(why is not None for why in refused), line


def test_commands_are_found_in_texts_with_values_filled_in() -> None:
    source = "f'with {name}: ' f'`virtune compare resume {study.id}` and `virtune host knobs {knob.id}`'"
    (text,) = strings(ast.parse(source))
    assert list(commands(text)) == [("compare", "resume", "last"), ("host", "knobs", "disk.aio")]


def test_a_shown_line_that_is_not_printed_is_found() -> None:
    printed = "one\ntwo\nthree\nfour\n"
    assert missing(("one", "...", "four"), printed) is None
    assert missing(("two", "three"), printed) is None
    assert missing(("one", "three"), printed) == "three"
    assert missing(("four", "...", "one"), printed) == "one"


def test_only_rounds_are_fewer_and_none_where_a_page_shows_what_they_decide() -> None:
    shown = Step("page.md", ("compare", "--rounds", "6", "--seconds", "1"), shown=("better",))
    assert shortened(shown) == shown.words
    few = ("compare", "--rounds", "2", "--seconds", "1", "--attempts", "1")
    assert shortened(replace(shown, shown=())) == few
    assert shortened(Step("page.md", ("probe",))) == ("probe",)


def test_what_only_a_long_run_types_is_measured_unseen() -> None:
    seldom = [step for page in PAGES for step in runs(page) if step not in always(page)]
    assert {verb_of(step.words) for step in seldom} == {"check", "compare", "fix"}
    assert not any(step.shown for step in seldom)
    (tutorial,) = [page for page in PAGES if page.stem == "tutorial"]
    assert [verb_of(step.words) for step in runs(tutorial) if step not in always(tutorial)] == ["check"]


def test_the_guide_has_commands_of_every_kind() -> None:
    found = [step for page in PAGES for step in steps(page)]
    assert {verb_of(step.words) for step in found} >= {
        "audit",
        "compare",
        "diagnose",
        "explain",
        "sweep",
        "tune",
        "undo",
    }
    assert any(step.shown for step in found)
    assert any(step.needs_libvirt for step in found)
