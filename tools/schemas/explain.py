# SPDX-License-Identifier: Apache-2.0
"""The schema of fio results as read: what `virtune explain --json` writes."""

from tools.schemas.names import KEYS
from tools.schemas.shape import word
from tools.schemas.typed import Typed, schema_of
from virtune.fio.results_json import DIRECTIONS
from virtune.model.measurement import Stream
from virtune.report.json.explain import SCHEMA, ExplainDocument

WORDS: dict[str, str] = {
    "LoadResult.name": "The name of the job or of the group.",
    "LoadResult.engine": "fio's I/O engine; null where the source does not say.",
    "LoadResult.pattern": "fio's `rw` word; null where the source does not say.",
    "LoadResult.block_size": "The size of a request in bytes; null where the source does not say one.",
    "LoadResult.direct": "Whether O_DIRECT was asked for; null where it is not known, or no file was opened.",
    "LoadResult.jobs": "Jobs that were reported together.",
    "LoadResult.depth": "I/Os in flight that were asked for, over all jobs (iodepth x numjobs).",
    "LoadResult.error": "The error number that the job ended with; 0 is none.",
    "LoadResult.streams": "What was done, by direction.",
    "LoadResult.usr_percent": "User CPU time in % of one CPU, in the mean over the jobs.",
    "LoadResult.sys_percent": "Kernel CPU time in % of one CPU, in the mean over the jobs.",
    "LoadResult.context_switches": "Context switches, a count.",
    "LoadResult.major_faults": "Page faults that read from a disk, a count.",
    "LoadResult.minor_faults": "Page faults without a read, a count.",
    "LoadResult.sync": "The latency of fsync and its like; null without any.",
    "LoadResult.depth_levels": "Pairs of fio's class of I/Os in flight (1, 2, 4, .. >=64) and the share of requests"
    " issued with that many, 0 to 1.",
    "LoadResult.submit_levels": "The same classes, of I/Os submitted by one call.",
    "LoadResult.complete_levels": "The same classes, of I/Os completed by one call.",
    "LoadResult.rate_asked_iops": "The load that was offered, in operations a second over all jobs; null for a closed"
    " loop.",
    "LoadResult.errors": "I/Os that failed while fio went on, a count.",
    "LoadResult.group": "fio's number of the reporting group; null where the source does not say.",
    "LoadResult.sections": "Whether several job sections stand here as one; then only what all of them share is"
    " known.",
    "LoadResult.began": "When the job started, in seconds since 1970; null before fio 3.36.",
    "LoadResult.options": "Pairs of name and value: the job's options as fio echoes them; null where it does not.",
    "Stream.direction": "read, write or trim; `mixed` where fio was told to sum them up.",
    "Stream.ios": "Completed I/Os, a count.",
    "Stream.bytes": "Bytes moved.",
    "Stream.seconds": "How long it ran, in seconds.",
    "Stream.iops": "Operations a second as fio says; the metrics count completions, which a ramp makes more of.",
    "Stream.bandwidth_bps": "Bytes a second.",
    "Stream.iops_samples": "Samples of the operations a second that the next four rest on, a count.",
    "Stream.iops_min": "The smallest sample, in operations a second.",
    "Stream.iops_max": "The largest sample, in operations a second.",
    "Stream.iops_mean": "The mean of the samples, in operations a second.",
    "Stream.iops_stddev": "The standard deviation of the samples, in operations a second.",
    "Stream.short_ios": "I/Os that came back incomplete, a count.",
    "Stream.dropped_ios": "I/Os that were dropped, a count.",
    "Stream.slat": "Submission latency: the time in the call that hands an I/O over.",
    "Stream.clat": "Completion latency: from there until the I/O was seen to be done.",
    "Stream.lat": "Total latency: both together.",
    "Latency.count": "Latencies that were counted.",
    "Latency.mean_ns": "The mean in nanoseconds.",
    "Latency.min_ns": "The smallest in nanoseconds.",
    "Latency.max_ns": "The largest in nanoseconds.",
    "Latency.stddev_ns": "The standard deviation in nanoseconds.",
    "Latency.percentiles": "Pairs of percent and nanoseconds, as the source printed them.",
    "DeviceUse.name": "The kernel's name of the device.",
    "DeviceUse.reads": "Read requests that it completed, a count.",
    "DeviceUse.writes": "Write requests that it completed, a count.",
    "DeviceUse.read_bytes": "Bytes read.",
    "DeviceUse.written_bytes": "Bytes written.",
    "DeviceUse.read_merges": "Reads that were merged into other requests, a count.",
    "DeviceUse.write_merges": "Writes that were merged into other requests, a count.",
    "DeviceUse.read_seconds": "The time that all reads spent at the device, added up, in seconds.",
    "DeviceUse.write_seconds": "The time that all writes spent at the device, added up, in seconds.",
    "DeviceUse.busy_percent": "The share of time in which it had a request, in %.",
}


def schema() -> str:
    """Return the schema as text."""
    shapes = Typed(WORDS, left_out=frozenset({"Latency.histogram"}), keys=KEYS)
    shapes.of(Stream)
    of_stream = shapes.definitions["Stream"]["properties"]
    of_stream["direction"] = word(of_stream["direction"]["description"], DIRECTIONS)
    return schema_of(SCHEMA, "fio results, explained", ExplainDocument, shapes)
