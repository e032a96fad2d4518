# SPDX-License-Identifier: Apache-2.0
"""The allowlist of fio options, the form of their values, and why others are refused; and what a job's options say of
its load: engine, pattern, block size, direct, depth, rate.

fio gains options with every release, and some of them run programs, choose files or unlink them, so an option that is
not in these tables never reaches it. Every value is checked as well, so that none can end a line of the job file or
start one of fio's own substitutions (`$ncpus` is evaluated through a shell).

fio echoes the options in its JSON, and a transcript of a terminal shows them on the command line. Those values are
untrusted text: an unreadable one is "unknown", never an error.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from virtune.model.errors import PlanError
from virtune.model.text import did_you_mean, parse_bytes, printable, quoted
from virtune.model.workload import READING, WRITING

ENGINES = ("io_uring", "libaio", "psync", "sync", "vsync", "pvsync", "pvsync2", "posixaio", "mmap", "splice", "nbd")
"""The engines that load a file, a block device or an NBD export, the best default first."""


ENGINE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "hipri": ("io_uring", "pvsync2"),
    "sqthread_poll": ("io_uring",),
    "sqthread_poll_cpu": ("io_uring",),
    "fixedbufs": ("io_uring",),
    "registerfiles": ("io_uring",),
    "nonvectored": ("io_uring",),
    "uncached": ("io_uring", "pvsync2"),
    "force_async": ("io_uring",),
    "nowait": ("io_uring", "libaio", "pvsync2"),
    "userspace_reap": ("libaio",),
}
"""Options that fio refuses with any other engine."""

Check = Callable[[str], None]

_COUNT = re.compile(r"[0-9]{1,18}", re.ASCII)
_TIME = re.compile(r"[0-9]{1,12}(us|ms|s|m|h)?", re.ASCII)
_RATE = re.compile(r"[0-9]{1,15}[kmgKMG]?", re.ASCII)
_CPUS = re.compile(r"[0-9]{1,4}(-[0-9]{1,4})?([,:][0-9]{1,4}(-[0-9]{1,4})?){0,255}", re.ASCII)
_RW = re.compile(
    r"(read|write|trim|randread|randwrite|randtrim|rw|readwrite|randrw|trimwrite|randtrimwrite)(:-?[0-9]{1,9}[kmKM]?)?",
    re.ASCII,
)
_SPLIT = re.compile(r"[0-9]{1,9}[kmKM]?/[0-9]{0,3}(:[0-9]{1,9}[kmKM]?/[0-9]{0,3}){0,63}", re.ASCII)
_DISTRIBUTION = re.compile(
    r"random|(zipf|pareto|normal):[0-9.]{1,9}(:[0-9.]{1,9})?"
    r"|zoned(:[0-9.]{1,9}/[0-9.]{0,9}){1,256}|zoned_abs(:[0-9.]{1,9}/[0-9]{1,15}[kmgtKMGT]?){1,256}",
    re.ASCII,
)
_SHARE = re.compile(r"(100|[1-9]?[0-9])%", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class FioOption:
    """One fio option: the form of its value, whether that may be missing, and where it may be used."""

    check: Check
    flag: bool = False
    inline: bool = True
    word: bool = False


def _whole(low: int, high: int) -> FioOption:
    def check(value: str) -> None:
        if not _COUNT.fullmatch(value):
            raise ValueError("is not a whole number")
        if not low <= int(value) <= high:
            raise ValueError(f"is outside {low}..{high}")

    return FioOption(check=check)


def _each(low: int, high: int, shape: re.Pattern[str], says: str, *, blank: bool = False) -> FioOption:
    """Up to three values for reads, writes and trims, each a number that may carry a suffix; with `blank`, one of
    them may be left out.
    """

    def check(value: str) -> None:
        every = value.split(",")
        parts = [part for part in every if part] if blank else every
        if not parts or len(every) > 3 or not all(shape.fullmatch(part) for part in parts):
            raise ValueError(f"is not {says}")
        if not all(low <= _size(part) <= high for part in parts):
            raise ValueError(f"is outside {low}..{high}")

    return FioOption(check=check)


def _size(text: str) -> int:
    if "i" in text.lower():
        raise ValueError("counts by 1000 to fio, which reads 64KiB as 64000 bytes; write 64k")
    return parse_bytes(text)


def _blocks(value: str) -> None:
    for part in value.split(",") if value.count(",") <= 2 else [""]:
        low, dash, high = part.partition("-")
        sizes = [_size(low), _size(high)] if dash else [_size(low)]
        if sizes != sorted(sizes) or not 512 <= sizes[0] <= sizes[-1] <= 64 * 1024**2:
            raise ValueError("is outside 512..64M")


def _range(value: str) -> None:
    if value.count("-") != value.count(",") + 1:
        raise ValueError("is not a range such as 4k-64k")
    _blocks(value)


def _extent(value: str) -> None:
    if not _SHARE.fullmatch(value):
        _size(value)


def _word(*words: str) -> FioOption:
    def check(value: str) -> None:
        if value not in words:
            raise ValueError(f"is not one of {', '.join(words)}")

    return FioOption(check=check, word=True)


def _shaped(shape: re.Pattern[str], says: str, *, word: bool = False, many: bool = False) -> FioOption:
    """Text of a shape; `many` allows one for reads, writes and trims each."""

    def check(value: str) -> None:
        parts = value.split(",") if many else [value]
        if len(parts) > 3 or not all(shape.fullmatch(part) for part in parts):
            raise ValueError(f"is not {says}")

    return FioOption(check=check, word=word)


def _switch(value: str) -> None:
    if value not in ("0", "1"):
        raise ValueError("is neither 0 nor 1")


def _engine(value: str) -> None:
    if value not in ENGINES:
        guess = did_you_mean(value, ENGINES) or ""
        raise ValueError(f"is not an engine for disks; virtune supports {', '.join(ENGINES)}. {guess}".rstrip(". "))


def _on(value: str) -> None:
    if value != "1":
        raise ValueError("must stay 1: virtune needs it")


def _text(value: str) -> None:
    if not value.isprintable() or len(value) > 200:
        raise ValueError("is not a short line of text")


_FLAG = FioOption(check=_switch, flag=True)
_BOOL = FioOption(check=_switch)
_EXTENT = FioOption(check=_extent)
_PERIOD = _shaped(_TIME, "a time such as 500us, 10ms or 2s")
_PERCENT = _whole(0, 100)
_RATES = _each(1, 10**15, _RATE, "a rate greater than 0 such as 500, 10k or 1000,500", blank=True)
_NUMBER = _whole(0, 10**9)
_SIZE = _each(0, 2**60, re.compile(r"[0-9]{1,18}[kmgtKMGT]?"), "a size such as 4k")

SHAPING: Mapping[str, FioOption] = {
    "rw": _shaped(_RW, "an access pattern such as read, randwrite or randrw", word=True),
    "bs": FioOption(check=_blocks),
    "bsrange": FioOption(check=_range),
    "bssplit": _shaped(_SPLIT, "a split such as 4k/60:64k/40", many=True),
    "bs_unaligned": _FLAG,
    "ba": _SIZE,
    "rwmixread": _PERCENT,
    "rwmixwrite": _PERCENT,
    "rw_sequencer": _word("sequential", "identical"),
    "iodepth": _whole(1, 65536),
    "iodepth_batch": _whole(1, 65536),
    "iodepth_batch_complete_min": _whole(0, 65536),
    "iodepth_batch_complete_max": _whole(0, 65536),
    "iodepth_low": _whole(1, 65536),
    "io_submit_mode": _word("inline", "offload"),
    "serialize_overlap": _BOOL,
    "numjobs": _whole(1, 4096),
    "ioengine": FioOption(check=_engine, word=True),
    "direct": _BOOL,
    "sync": _word("none", "0", "sync", "1", "dsync"),
    "fsync": _NUMBER,
    "fdatasync": _NUMBER,
    "sync_file_range": _shaped(
        re.compile(r"(wait_before|write|wait_after):[0-9]{1,9}"), "such as write:8", word=True
    ),
    "end_fsync": _BOOL,
    "rate": _RATES,
    "rate_iops": _RATES,
    "rate_process": _word("linear", "poisson"),
    "rate_ignore_thinktime": _BOOL,
    "thinktime": _PERIOD,
    "thinktime_spin": _PERIOD,
    "thinktime_iotime": _PERIOD,
    "thinktime_blocks": _whole(1, 10**9),
    "thinktime_blocks_type": _word("complete", "issue"),
    "random_distribution": _shaped(
        _DISTRIBUTION, "random, zipf:1.2, pareto:0.9, normal:50 or zoned:60/10:40/90", word=True, many=True
    ),
    "random_generator": _word("tausworthe", "lfsr", "tausworthe64"),
    "percentage_random": _each(0, 100, re.compile(r"[0-9]{1,3}"), "a percentage"),
    "norandommap": _FLAG,
    "randrepeat": _BOOL,
    "allrandrepeat": _BOOL,
    "randseed": _whole(0, 2**63 - 1),
    "refill_buffers": _FLAG,
    "zero_buffers": _FLAG,
    "scramble_buffers": _BOOL,
    "buffer_compress_percentage": _PERCENT,
    "buffer_compress_chunk": _SIZE,
    "dedupe_percentage": _PERCENT,
    "hipri": _FLAG,
    "sqthread_poll": _FLAG,
    "sqthread_poll_cpu": _whole(0, 4095),
    "fixedbufs": _BOOL,
    "registerfiles": _BOOL,
    "nonvectored": _BOOL,
    "uncached": _BOOL,
    "force_async": _NUMBER,
    "nowait": _BOOL,
    "userspace_reap": _FLAG,
    "offset": _EXTENT,
    "offset_increment": _EXTENT,
    "size": _EXTENT,
    "number_ios": _whole(1, 10**15),
    "invalidate": _BOOL,
    "lockmem": _SIZE,
    "mem": _word("malloc", "shm", "shmhuge", "mmap", "mmaphuge"),
    "cpus_allowed": _shaped(_CPUS, "a list of CPUs such as 0-3,8"),
    "cpus_allowed_policy": _word("shared", "split"),
    "nice": _shaped(re.compile(r"-?[0-9]{1,2}"), "a nice value"),
    "prio": _whole(0, 7),
    "prioclass": _whole(0, 3),
    "latency_target": _PERIOD,
    "latency_window": _PERIOD,
    "latency_percentile": _shaped(re.compile(r"[0-9]{1,3}(\.[0-9]{1,6})?"), "a percentile"),
    "latency_run": _BOOL,
}
"""Options that shape the load: allowed inline, in plan files and in job files."""

IN_FILES: Mapping[str, FioOption] = {
    "description": FioOption(check=_text),
    "runtime": _PERIOD,
    "ramp_time": _PERIOD,
    "time_based": _FLAG,
    "loops": _whole(1, 10**9),
    "io_size": _SIZE,
    "thread": FioOption(check=_on, flag=True),
    "group_reporting": _FLAG,
    "new_group": _FLAG,
    "clat_percentiles": FioOption(check=_on),
    "lat_percentiles": _BOOL,
    "slat_percentiles": _BOOL,
    "percentile_list": _shaped(re.compile(r"[0-9.]{1,12}(:[0-9.]{1,12}){0,19}"), "percentiles such as 50:99:99.9"),
    "disk_util": _BOOL,
    "exitall": _FLAG,
    "exitall_on_error": _FLAG,
}
"""Options that virtune sets itself, and therefore accepts only in a user's own job file."""

ALIASES: Mapping[str, str] = {
    "readwrite": "rw",
    "blocksize": "bs",
    "blocksize_range": "bsrange",
    "blocksize_unaligned": "bs_unaligned",
    "blockalign": "ba",
    "iodepth_batch_submit": "iodepth_batch",
    "iodepth_batch_complete": "iodepth_batch_complete_min",
    "io_limit": "io_size",
    "fileoffset": "offset",
    "timeout": "runtime",
    "iomem": "mem",
}

_TARGET = "the target is virtune's to choose: give it by --target or --scratch"
_PROGRAM = "a workload must not run programs"
_FILES = "a workload must not read or write files of its own"
_NUMBERS = "virtune keeps every number that fio gives; what it leaves out cannot be judged"
_TOGETHER = "the jobs of a workload run together; give each phase a workload of its own"
_PRIVILEGE = "a workload must not change users, groups or the host's settings"
_VERIFY = "verifying changes the load and leaves state files; virtune only measures"
_LAYOUT = "the target is filled by virtune before the first trial, and stays as it is"

_STEADY = "a trial ends after its time; `--until-steady` runs the load until it is steady before the trials"

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("filename", "directory", "filename_format", "unique_filename", "opendir", "nrfiles", "nr_files", "uri",
         "openfiles", "file_service_type", "hostname", "port", "lockfile", "allow_mounted_write", "replay_redirect"),
        _TARGET,
    ),
    **dict.fromkeys(("exec_prerun", "exec_postrun", "profile"), _PROGRAM),
    **dict.fromkeys(
        ("write_bw_log", "write_lat_log", "write_iops_log", "write_hist_log", "write_iolog", "read_iolog",
         "merge_blktrace_file", "output", "output-format", "include", "per_job_logs", "buffer_pattern", "aux-path",
         "verify_state_save", "verify_state_load", "verify_pattern", "dedupe_global", "status-interval", "trigger"),
        _FILES,
    ),
    **dict.fromkeys(
        ("gtod_reduce", "stats", "disable_lat", "disable_clat", "disable_slat", "disable_bw", "continue_on_error",
         "disable_bw_measurement", "unified_rw_reporting", "ignore_error", "kb_base", "unit_base", "clocksource"),
        _NUMBERS,
    ),
    **dict.fromkeys(("stonewall", "wait_for_previous", "wait_for", "startdelay"), _TOGETHER),
    **dict.fromkeys(("uid", "gid", "cgroup", "cgroup_weight", "cgroup_nodelete", "ioscheduler"), _PRIVILEGE),
    **dict.fromkeys(("verify", "do_verify", "verify_only", "experimental_verify", "verify_async"), _VERIFY),
    **dict.fromkeys(
        ("unlink", "unlink_each_loop", "filesize", "file_append", "fallocate", "fill_device", "fill_fs", "overwrite",
         "allow_file_create", "create_on_open", "create_only", "create_serialize", "create_fsync", "pre_read"),
        _LAYOUT,
    ),
    **dict.fromkeys(
        ("steadystate", "ss", "steadystate_duration", "ss_dur", "steadystate_ramp_time", "ss_ramp"), _STEADY
    ),
    "name": "`name:` before an inline workload names it",
}  # fmt: skip
"""The refused options, and why."""

NOTHING: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        ("verify", "do_verify", "experimental_verify", "verify_async", "overwrite", "unlink", "unlink_each_loop",
         "file_append", "fill_device", "fill_fs", "pre_read", "create_on_open", "create_only", "gtod_reduce",
         "disable_lat", "disable_clat", "disable_slat", "disable_bw", "disable_bw_measurement", "startdelay",
         "allow_mounted_write", "verify_state_save", "verify_state_load"),
        frozenset({"0"}),
    ),
    **dict.fromkeys(("nrfiles", "nr_files"), frozenset({"1"})),
    "fallocate": frozenset({"none"}),
    "continue_on_error": frozenset({"none"}),
    "unified_rw_reporting": frozenset({"0", "none"}),
    "kb_base": frozenset({"1024"}),
}  # fmt: skip
"""Values of refused options that have no effect: a job file may have them."""

_TYPO = 0.75
"""fio has many options that virtune does not know, so only a very similar word is suggested."""


def read_option(name: str, value: str | None, *, where: str, in_file: bool) -> tuple[str, str]:
    """Check one option and return its canonical name and its value; None stands for a flag without a value.

    Raises PlanError with the reason, and the closest name that exists.
    """
    canonical = ALIASES.get(name, name)
    if canonical == "buffered" and value in ("0", "1"):
        return "direct", "1" if value == "0" else "0"
    option = SHAPING.get(canonical) or (IN_FILES.get(canonical) if in_file else None)
    if option is None:
        raise _refusal(name, where)
    if value is None:
        if not option.flag:
            raise PlanError(f"{where}: {canonical} needs a value", hint=f"write {canonical}=...")
        return canonical, "1"
    try:
        option.check(value)
    except ValueError as error:
        reason = str(error)
        sentence = reason if reason.startswith(("is ", "must ", "counts ")) else f"is wrong: {reason}"
        raise PlanError(f"{where}: {canonical}={quoted(value)} {sentence}") from error
    return canonical, value


def check_together(options: Mapping[str, str], *, where: str) -> None:
    """Refuse options that contradict each other; raises PlanError."""
    engine = options.get("ioengine")
    for name, engines in ENGINE_OPTIONS.items():
        if engine is not None and name in options and engine not in engines:
            raise PlanError(
                f"{where}: {name} belongs to ioengine={' or '.join(engines)}, and the engine is {engine}",
                hint=f"leave {name} out, or change the engine",
            )
    if engine == "mmap" and options.get("direct") == "1":
        raise PlanError(f"{where}: ioengine=mmap always goes through the page cache, so direct=1 cannot be")
    if int(options.get("iodepth", "1")) < int(options.get("iodepth_batch", "1")):
        raise PlanError(f"{where}: iodepth_batch is larger than iodepth")
    if options.get("direct") != "0" and "bs_unaligned" not in options:
        blocks = re.split("[,-]", options.get("bs", "4k"))
        if any(parse_bytes(block) % 512 for block in blocks):
            raise PlanError(
                f"{where}: direct I/O needs blocks that are multiples of 512 bytes, and bs={options['bs']}"
            )
    if "zero_buffers" in options and "refill_buffers" in options:
        raise PlanError(f"{where}: zero_buffers and refill_buffers cannot be together")


def _refusal(name: str, where: str) -> PlanError:
    known = ALIASES.get(name, name)
    if known in REFUSED:
        return PlanError(f"{where}: virtune refuses the fio option {known}", hint=REFUSED[known])
    if known in IN_FILES:
        hint = "virtune writes it itself, from --seconds, --ramp and the like; a job file may say it"
        return PlanError(f"{where}: {known} is not part of a workload", hint=hint)
    guess = did_you_mean(name, {*SHAPING, *IN_FILES, *ALIASES, "buffered"}, cutoff=_TYPO)
    return PlanError(f"{where}: {quoted(name)} is not a fio option known to virtune", hint=guess)


DEFAULT_ENGINE = "psync"
"""fio's engine on Linux when a job names none."""

SYNCHRONOUS = frozenset({"sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "splice", "dev-dax", "libpmem"})
"""Engines whose call returns when the I/O is done: one I/O in flight a job, whatever `iodepth` says."""

MOST_JOBS = 4096
"""fio itself refuses to run more jobs (REAL_MAX_JOBS), so no result has more."""

_REMOTE = frozenset(
    {"nbd", "libblkio", "rbd", "rados", "http", "libiscsi", "gfapi", "gfapi_async", "nfs", "null", "net",
     "virtio-blk-vhost-user", "virtio-blk", "virtio-scsi", "nvme"}
)  # fmt: skip
"""Engines that use a protocol, a guest's own driver, or no device: they bypass the page cache."""

_ALIASES = {"readwrite": "rw", "blocksize": "bs", "odirect": "direct"}
_MOST = 1_000_000
"""fio takes no larger depth or number of jobs; a larger value is treated as unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """The options as this program uses them; None if unknown. `depth` is that of one job."""

    engine: str
    pattern: str
    block_size: int | None
    direct: bool | None
    jobs: int
    depth: int
    rate_iops: float | None


def canonical(options: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Give every option the name that the rest of this program uses; the later of two wins, as in fio."""
    return {_ALIASES.get(name, name): value for name, value in options}


def verifies_after(options: Mapping[str, str]) -> bool:
    """Whether a job reads what it wrote, when all is written."""
    pattern = options.get("rw", "read").partition(":")[0]
    writes = pattern in WRITING and "trim" not in pattern
    off = ("0", "none", "null")
    asked = options.get("verify", "0") not in off and options.get("do_verify", "1") != "0"
    return writes and asked and options.get("verify_backlog", "0") == "0"


def facts_of(options: Mapping[str, str]) -> JobFacts:
    """Read the facts out of the options of one job; what a job does not set has fio's default."""
    pattern = options.get("rw", "read").partition(":")[0]
    block_size = _block_size(options)
    return JobFacts(
        engine=shown(options.get("ioengine", DEFAULT_ENGINE).partition(":")[0]),
        pattern=shown(pattern),
        block_size=block_size,
        direct=_direct(options),
        jobs=whole(options.get("numjobs", "1")) or 1,
        depth=whole(options.get("iodepth", "1")) or 1,
        rate_iops=_rate_iops(options, pattern, block_size),
    )


def shown(text: str) -> str:
    """Return an untrusted word of a job, safe to show: printable, and at most 100 characters."""
    return printable(text, most=100)


def size_of(text: str) -> int | None:
    """Read one size or rate as fio does (`4k`, `4096B`; fio takes `4KiB` for 4000); None for anything else."""
    try:
        return None if "i" in text.lower() else parse_bytes(text)
    except ValueError:
        return None


def _block_size(options: Mapping[str, str]) -> int | None:
    """Return the one size of all blocks (`bs=4k`, `4k,4k`, `4096B-4096B`); None where there are several."""
    if {"bsrange", "blocksize_range", "bssplit"} & options.keys():
        return None
    sizes = {size_of(part) for part in re.split("[,-]", options.get("bs", "4k"))}
    return sizes.pop() if len(sizes) == 1 else None


def whole(text: str) -> int | None:
    """Read a plain positive number such as a depth; None when it is something else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 and 0 < int(text) <= _MOST else None


def _direct(options: Mapping[str, str]) -> bool | None:
    """Whether O_DIRECT is in use. `buffered=0` is fio's other way to write `direct=1`; the default is buffered.

    None for engines that open no file of this host, because it depends on their server.
    """
    if options.get("ioengine", "").partition(":")[0] in _REMOTE:
        return None
    if "direct" in options:
        return {"1": True, "0": False}.get(options["direct"])
    if "buffered" in options:
        return {"1": False, "0": True}.get(options["buffered"])
    return False


def _rate_iops(options: Mapping[str, str], pattern: str, block_size: int | None) -> float | None:
    """Add up the `rate_iops` (or `rate`, in bytes) of one job over its directions: one value counts for each of them,
    of `read,write,trim` each for its own.
    """
    name, scale = ("rate_iops", 1) if "rate_iops" in options else ("rate", block_size)
    if name not in options or not scale:
        return None
    parts = [size_of(part) for part in options[name].split(",")]
    active = [pattern in READING, pattern in WRITING and "trim" not in pattern, "trim" in pattern]
    asked = [parts[0] if len(parts) == 1 else (parts[i] if i < len(parts) else None) for i in range(3)]
    limited = [value for value, on in zip(asked, active, strict=True) if on]
    if not limited or any(value is None for value in limited):
        return None
    return math.fsum(value for value in limited if value) / scale


def milliseconds(text: str) -> int:
    """Read a time as fio writes it (`30`, `300ms`, `2m`), in milliseconds."""
    number = int(re.match(r"[0-9]+", text)[0])  # type: ignore[index]
    unit = text.lstrip("0123456789")
    return (
        number // 1000 if unit == "us" else number * {"": 1000, "s": 1000, "ms": 1, "m": 60_000, "h": 3_600_000}[unit]
    )


def in_milliseconds(seconds: float) -> str:
    """Write a time as fio takes it: `runtime=0.3` is not 300 ms for it."""
    return f"{round(seconds * 1000)}ms"
