// SPDX-License-Identifier: Apache-2.0
// Preloaded into a storage daemon, it says of writes between LOSE_FROM and LOSE_TO that they are done, and drops them,
// once LOSE_SKIP bytes were written.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/uio.h>

static atomic_llong written;

static int lost(off_t at, ssize_t bytes) {
    long long before = atomic_fetch_add(&written, bytes);
    return before >= atoll(getenv("LOSE_SKIP")) && at >= atoll(getenv("LOSE_FROM")) && at < atoll(getenv("LOSE_TO"));
}

ssize_t pwrite64(int file, const void *from, size_t bytes, off_t at) {
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite64");
    return lost(at, bytes) ? (ssize_t)bytes : real(file, from, bytes, at);
}

ssize_t pwritev64(int file, const struct iovec *parts, int count, off_t at) {
    ssize_t (*real)(int, const struct iovec *, int, off_t) = dlsym(RTLD_NEXT, "pwritev64");
    ssize_t bytes = 0;
    for (int one = 0; one < count; one++) bytes += parts[one].iov_len;
    return lost(at, bytes) ? bytes : real(file, parts, count, at);
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t at) { return pwrite64(file, from, bytes, at); }

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) { return pwritev64(file, parts, count, at); }
