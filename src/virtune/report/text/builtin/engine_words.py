# SPDX-License-Identifier: Apache-2.0
"""What each of fio's engines is for, in a sentence."""

from collections.abc import Mapping

ENGINE_WORDS: Mapping[str, str] = {
    "sync": "lseek, then read or write; the call returns when the I/O is over, so one is in flight per job",
    "psync": "pread and pwrite, one call instead of two; what most programs do, and fio's default",
    "libaio": "Linux' older asynchronous calls; asynchronous with direct=1 alone, else the submission waits",
    "mmap": "the file is mapped into memory, and each access is a copy; reads cost page faults, writes go out later",
    "splice": "moves pages through a pipe without a copy to the program; for sending files on rather than for load",
    "io_uring": "two rings shared with the kernel; asynchronous for buffered and direct I/O, few calls per I/O",
}
"""The use of each engine."""
