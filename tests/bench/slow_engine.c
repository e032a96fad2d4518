// SPDX-License-Identifier: Apache-2.0
// Preloaded into a storage daemon, it hands the kernel requests 5 ms late by one of its engines: SLOW=threads or io_uring.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static void wait_for(const char *engine) {
    if (!strcmp(getenv("SLOW"), engine)) usleep(5000);
}

ssize_t pread64(int file, void *to, size_t bytes, off_t at) {
    ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread64");
    wait_for("threads");
    return real(file, to, bytes, at);
}

ssize_t preadv64(int file, const struct iovec *parts, int count, off_t at) {
    ssize_t (*real)(int, const struct iovec *, int, off_t) = dlsym(RTLD_NEXT, "preadv64");
    wait_for("threads");
    return real(file, parts, count, at);
}

int io_uring_submit(void *ring) {
    int (*real)(void *) = dlsym(RTLD_NEXT, "io_uring_submit");
    wait_for("io_uring");
    return real(ring);
}
