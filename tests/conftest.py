# SPDX-License-Identifier: Apache-2.0
"""What tests share: places, a look at what was left running, a virtune to call as a user would."""

import atexit
import contextlib
import filecmp
import functools
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.forkserver import ForkServer, Started, interpreter_alike
from tests.suite_rules import SuiteRules
from virtune.bench.scratch import Scratch
from virtune.model.errors import MissingToolError
from virtune.model.event import Event
from virtune.model.remark import GATE_BY_ID
from virtune.shell import GENERATOR, GENERATOR_PLACES, Warden, find_generator
from virtune.warden import noted_removals

# how fast examples are drawn depends on who else uses the CPUs, and which they are should not be left to chance
any_machine = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None)
settings.register_profile("any machine", any_machine)
settings.load_profile("any machine")

# Who starts the tests in the background of a shell has them ignore Ctrl-C, and so would everything that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Where bytecode may not be kept, each virtune that is started compiles all that it imports: 1.2 s instead of 0.4 s.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

TEMPORARY = tempfile.mkdtemp(prefix="vt", dir="/tmp")
"""Where the runs of these tests keep their sockets, so that other runs on this machine are not taken for theirs."""

os.environ["TMPDIR"] = tempfile.tempdir = TEMPORARY
atexit.register(shutil.rmtree, TEMPORARY, ignore_errors=True)

CALM = ("--workload", "rw=randread,bs=4k,iodepth=4,rate_iops=500")
"""A load that waits nearly all the time, for what is asked of a study whatever its load is."""

SPAN = 64 * 1024**2
"""Scratch images of tests: filled in a blink, large enough for random reads to be random."""


@dataclass(frozen=True)
class Ran:
    """What one call of virtune left."""

    status: int
    stdout: str
    stderr: str

    def json(self) -> Any:
        return json.loads(self.stdout)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SuiteRules(), "suite-rules")
    if "XDG_DATA_HOME" not in os.environ:  # who runs the tests may have studies of their own, of another version
        place = tempfile.TemporaryDirectory(prefix="virtune-tests-")
        config.add_cleanup(place.cleanup)
        os.environ["XDG_DATA_HOME"] = place.name


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what is collected out of the way of the garbage collector: it lives until the end, and each look costs."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


ID_MAX = 60
"""Every worker sends the names of all cases to the one that shares them out, so none is a document of megabytes."""


def pytest_make_parametrize_id(config: pytest.Config, val: object) -> str | None:
    """Name a case whose value is a long text by how it begins."""
    return f"{val[:ID_MAX]!r}..." if isinstance(val, str | bytes) and len(val) > ID_MAX else None


@functools.cache
def fork_server() -> ForkServer:
    """The server that forks a process for each `virtune` of these tests."""
    server = ForkServer()
    atexit.register(server.close)
    return server


LONG_GROUPS = ("libvirt", "loop devices", "guests", "fleet", "domains", "study", "first")
"""The groups that take longest begin first, one on each worker: at the end one would leave a CPU idle."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have those that measure run one after the other, and what takes long begin first."""

    def turn(item: pytest.Item) -> int:
        group = item.get_closest_marker("xdist_group")
        if group is None:
            return len(LONG_GROUPS) + 1
        return LONG_GROUPS.index(group.args[0]) if group.args[0] in LONG_GROUPS else len(LONG_GROUPS)

    for item in items:
        if item.get_closest_marker("first") and not item.get_closest_marker("alone"):
            item.add_marker(pytest.mark.xdist_group("first"))
    items.sort(key=turn)


FIRST = -15
"""So nice, a thread has 28 times the share of a CPU of one with the usual 0."""


def _reniced(by: int) -> None:
    """Give what we start from now on another priority."""
    for process in (0, fork_server().pid):
        os.setpriority(os.PRIO_PROCESS, process, os.getpriority(os.PRIO_PROCESS, process) + by)


@contextlib.contextmanager
def first_served(nice: int = FIRST) -> Iterator[None]:
    """Let what is started meanwhile run before other work, where that is allowed (root)."""
    try:
        _reniced(nice)
    except PermissionError:
        yield
        return
    try:
        yield
    finally:
        _reniced(-nice)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool | None, bool | None]:
    """Give a test marked `first` its priority, and also what the fixtures of its module start."""
    with first_served() if item.get_closest_marker("first") else contextlib.nullcontext():
        return (yield)


class User:
    """Calls virtune as a user does: another process, its own store and scratch directory."""

    def __init__(self, home: Path, scratch: Path, *, once: bool = False) -> None:
        """With `once` no trial is repeated because something disturbed it."""
        self.home, self.scratch, self.once = home, scratch, once
        self.store = home / "store.sqlite"
        self.env = dict(os.environ) | {"XDG_DATA_HOME": str(home), "COLUMNS": "100", "NO_COLOR": "1"}

    def command(self, *words: str, exactly: bool = False) -> list[str]:
        last = 1 if words[:2] in (("compare", "measure"), ("host", "check")) else 0
        begins = words[:2] not in (("compare", "study"), ("compare", "resume"))
        if begins and words[last] in ("compare", "measure", "tune", "check", "sweep") and not exactly:
            once = ("--attempts", "1") if self.once and words[last] != "check" else ()
            words = (
                *words[: last + 1],
                *once,
                *words[last + 1 :],
                "--scratch",
                str(self.scratch),
                "--span",
                str(SPAN),
            )
        return [sys.executable, "-m", "virtune", *words]

    def run(
        self,
        *words: str,
        timeout: float = 240,
        path: str | None = None,
        status: int | None = 0,
        exactly: bool = False,
    ) -> Ran:
        """Run these words; unless `exactly` they are, with the tests' scratch directory and a small span."""
        env = self.env | ({"PATH": path} if path is not None else {})
        command = self.command(*words, exactly=exactly)
        if interpreter_alike(env):
            done = fork_server().run(command[3:], env=env, cwd=self.home, timeout=timeout)
        else:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env, cwd=self.home)
        ran = Ran(done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in ran.stderr, ran.stderr
        if status is not None:
            assert ran.status == status, f"{words}: exit {ran.status}\n{ran.stdout}\n{ran.stderr}"
        return ran

    def start(self, *words: str) -> Started:
        """Start these words beside the test; where the test ends before they do, `end_started` kills them."""
        assert interpreter_alike(self.env)
        process = fork_server().start(self.command(*words)[3:], env=self.env, cwd=self.home)
        _STARTED.append(process)
        return process


_STARTED: list[Started] = []


def end_started() -> None:
    """Kill every virtune that `User.start` started and that still runs, with all that it started itself.

    A test that fails in the middle would otherwise leave a run that holds the scratch directory, and the tests after
    it would fail for that.
    """
    running = [process for process in _STARTED if process.poll() is None]
    for process in running:
        process.kill()
        process.wait(30)
    for process in _STARTED:
        for stream in (process.stdout, process.stderr):
            stream.close()
    _STARTED.clear()
    if running:
        eventually(lambda: not marked_processes())  # its guard ends what it left


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    """A test that fails leaves no virtune running."""
    yield
    if _STARTED:
        end_started()


@pytest.fixture(autouse=True)
def nothing_is_told_of_others_leftovers() -> None:
    """What a test before removed is no note of this one's call, where both run in one process."""
    noted_removals()


@pytest.fixture(scope="session")
def scratch_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One scratch directory for all tests, so that an image is filled once. On a disk, not in memory."""
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture
def user(request: pytest.FixtureRequest, tmp_path: Path, scratch_directory: Path) -> User:
    return User(tmp_path, scratch_directory, once=request.node.get_closest_marker("once") is not None)


@pytest.fixture
def warden(request: pytest.FixtureRequest) -> Iterator[Warden]:
    with Warden(f"t{os.getpid()}-{abs(hash(request.node.name)) % 10**6}") as found:
        yield found


@pytest.fixture
def scratch(scratch_directory: Path) -> Iterator[Scratch]:
    def say(event: Event) -> None:
        assert event is not None

    with Scratch(scratch_directory, span_bytes=SPAN, say=say) as found:
        yield found


@functools.cache
def generator() -> str:
    """The path of virtune-load, made from its source as it stands; without cargo the one that is there is taken."""
    with contextlib.suppress(MissingToolError):
        made = _made_generator()
        found = find_generator()
        assert made is None or os.path.samefile(made, found), f"{found} on the PATH hides the one just built"
        return found
    pytest.skip("virtune-load is missing and cannot be built: install Rust 1.89 or newer (cargo), and try again")


def _made_generator() -> Path | None:
    """Build virtune-load into the place where virtune looks first; a moment's work when nothing has changed."""
    cargo = shutil.which("cargo")
    if cargo is None:
        return None
    checkout, place = Path(__file__).parents[1], GENERATOR_PLACES[0]
    target = checkout / ".venv" / "loadgen"  # as tools/setup and tools/test-load do, so that it is built once
    words = [cargo, "build", "-q", "--release", "--locked", "--target-dir", str(target)]
    done = subprocess.run(words, cwd=checkout / "loadgen", capture_output=True, text=True)
    if done.returncode:  # an old one must not stand in for it; tools/test-load says where our code is at fault
        pytest.fail(f"`cargo build --release` in loadgen/ failed (Rust 1.89 or newer?): {done.stderr[-300:]}")
    built, kept = target / "release" / GENERATOR, place / GENERATOR
    if not kept.exists() or not filecmp.cmp(built, kept, shallow=False):
        fresh = place / f"{GENERATOR}.{os.getpid()}"  # other processes of these tests do the same at the same time
        shutil.copy2(built, fresh)
        fresh.replace(kept)
    return kept


@functools.cache
def bare_guest() -> Path:
    """The guest without an operating system, made from its source; without cargo the one that is there."""
    from virtune.bench.qemu.carried import GUEST
    from virtune.bench.qemu.load import PLACES, find_guest

    cargo = shutil.which("cargo")
    if cargo is not None:
        checkout, place = Path(__file__).parents[1], PLACES[0]
        words = [cargo, "rustc", "-q", "--profile", "guest", "--locked", "--package", "virtune-guest"]
        words += ["--target-dir", str(checkout / ".venv" / "loadgen"), "--", "-C", "relocation-model=static"]
        done = subprocess.run(words, cwd=checkout / "loadgen", capture_output=True, text=True)
        if done.returncode:
            pytest.fail(f"the guest in loadgen/guest could not be built (Rust 1.89 or newer?): {done.stderr[-300:]}")
        built, kept = checkout / ".venv" / "loadgen" / "guest" / GUEST, place / GUEST
        if not kept.exists() or not filecmp.cmp(built, kept, shallow=False):
            place.mkdir(parents=True, exist_ok=True)
            fresh = place / f"{GUEST}.{os.getpid()}"
            shutil.copy2(built, fresh)
            fresh.replace(kept)
    with contextlib.suppress(MissingToolError):
        return find_guest()
    pytest.skip("virtune-guest is missing and cannot be built: install Rust 1.89 or newer (cargo), and try again")


def marked_processes() -> list[str]:
    """Every process that a virtune run of these tests started: `pid comm`."""
    found = []
    ours = f"TMPDIR={TEMPORARY}".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            variables = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if ours in variables and any(variable.startswith(b"VIRTUNE_RUN=") for variable in variables):
                found.append(f"{entry.name} {(entry / 'comm').read_text().strip()}")
    return found


AT_BOTH_ENDS = {"cpu_per_io", "device.util"}
"""What takes a look at the begin and at the end of a load."""

MOSTLY = 0.5
"""The share of time in which some process of the host waited for a CPU."""

LOOKED_AT_NS = 300_000_000
"""Of less time between both looks nothing is said, or may be."""


def require_both_ends(user: User, arm: Any) -> None:
    """Ask each trial of an arm of the last study for what takes a look at both ends of its load.

    Only where others had the CPUs, as it or the kernel says, may a short load be over before its end was looked at.
    """
    flag = GATE_BY_ID["cpu-wait"].flag
    assert flag is not None
    for one in arm["rounds"]:
        kept = user.run("show", "last", "--trial", str(one["number"]), "--capture", "counters.jsonl").stdout
        marked = {line["mark"]: line for line in map(json.loads, kept.splitlines()[1:]) if "mark" in line}
        measured, marks = one["measurement"], {mark: line["t"] for mark, line in marked.items()}
        both = {"begin", "stop"} <= marks.keys()
        if both and marks["stop"] - marks["begin"] < LOOKED_AT_NS:
            continue
        if not both and measured["gates"].get("cpu-wait", 0.0) <= flag:
            stalled = [int(re.findall(r"total=(\d+)", line["pressure"]["cpu"])[0]) * 1000 for line in marked.values()]
            waited = (stalled[-1] - stalled[0]) / (max(marks.values()) - min(marks.values()))
            assert waited > MOSTLY, (marks, waited, measured)
        assert (measured["values"].keys() >= AT_BOTH_ENDS) is both, (marks, measured)


def quota_group() -> Path:
    """A control group below ours that may use a fifth of one CPU, and gets that whoever else wants the CPUs.

    Skips where none can be made.
    """
    one, two = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
    place = (one if one.is_dir() else two) / f"virtune-test-{os.getpid()}"
    try:
        place.mkdir()
        if one.is_dir():
            (place / "cpu.cfs_quota_us").write_text("20000")
            (place / "cpu.shares").write_text("200000")
        else:
            (place / "cpu.max").write_text("20000 100000")
            (place / "cpu.weight").write_text("10000")
    except OSError as error:
        with contextlib.suppress(OSError):
            place.rmdir()
        pytest.skip(f"no control group with a CPU limit can be made here: {error}; run as root on the host")
    return place


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the hint of an error that no test expects: of a program that failed it is what that said."""
    report = yield
    hint = getattr(call.excinfo and call.excinfo.value, "hint", None)
    if hint:
        report.sections.append(("Hint", hint))
    return report


def eventually(true: Callable[[], bool], *, seconds: float = 60) -> bool:
    """Whether something comes true in time, also on a machine whose CPUs others use.

    A look that takes long is made less often, so that what it waits for has the CPU.
    """
    deadline = time.monotonic() + seconds
    while (begun := time.monotonic()) < deadline:
        if true():
            return True
        time.sleep(min(1.0, max(0.02, 4 * (time.monotonic() - begun))))
    for process in _STARTED:  # perhaps what it waits for has ended, and said why
        if not process.stderr.closed and process.poll() is not None:
            print(f"ended with {process.returncode}: {process.stderr.read()[-2000:]}")
    return true()
