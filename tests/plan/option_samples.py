# SPDX-License-Identifier: Apache-2.0
"""A value for each of fio's options."""

SAMPLES = {
    "rw": "randrw:8", "bs": "4k,8k", "bsrange": "4k-16k", "bssplit": "4k/60:8k/40,16k/100", "ba": "4k",
    "rw_sequencer": "identical", "io_submit_mode": "offload", "ioengine": "psync", "sync": "dsync",
    "sync_file_range": "write:8", "rate": "1m,500k", "rate_iops": "500,200", "rate_process": "poisson",
    "thinktime": "10ms", "thinktime_spin": "500us", "thinktime_iotime": "1s", "thinktime_blocks_type": "issue",
    "random_distribution": "zipf:1.2", "random_generator": "lfsr", "percentage_random": "50,20", "offset": "50%",
    "offset_increment": "1m", "size": "50%", "lockmem": "1m", "mem": "shm", "cpus_allowed": "0,0",
    "cpus_allowed_policy": "split", "nice": "-5", "latency_target": "10ms", "latency_window": "1s",
    "latency_percentile": "99.9", "buffer_compress_chunk": "4k", "runtime": "2s", "ramp_time": "10ms",
    "io_size": "4m", "percentile_list": "50:99.9", "description": "a word",
}  # fmt: skip
