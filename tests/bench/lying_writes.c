// SPDX-License-Identifier: Apache-2.0
// Preloaded into a storage daemon, it says of some writes between LIE_FROM and LIE_TO that they are done, and does
// something else, once LIE_SKIP bytes were written: of each thousand LIE_OFTEN, drawn by chance from LIE_SEED. LIE_HOW:
//   lost       nothing is written
//   torn       only the first half
//   late       it is written after the next write that is lied about, and so after a flush if that comes first
//   exchanged  its data goes to the place of that one, whose data comes here
//   unflushed  it is written, and no flush is made
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>

static struct { int file; size_t bytes; off_t at; char *from; } held;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static long long written;
static unsigned seed;

static ssize_t honest(int file, const void *from, size_t bytes, off_t at) {
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite64");
    return real(file, from, bytes, at);
}

static void hold(int file, const void *from, size_t bytes, off_t at) {
    held.file = file, held.bytes = bytes, held.at = at;
    held.from = aligned_alloc(4096, bytes);
    memcpy(held.from, from, bytes);
}

// The writer waits: a daemon that is one thread at a time is none the slower to look at.
ssize_t pwrite64(int file, const void *from, size_t bytes, off_t at) {
    const char *how = getenv("LIE_HOW");
    pthread_mutex_lock(&one_at_a_time);
    if (!seed) seed = atoi(getenv("LIE_SEED")) + 1;
    int lie = written >= atoll(getenv("LIE_SKIP")) && at >= atoll(getenv("LIE_FROM")) && at < atoll(getenv("LIE_TO"))
        && bytes >= 1024 && rand_r(&seed) % 1000 < (unsigned)atoi(getenv("LIE_OFTEN"));
    written += bytes;
    if (!lie || !strcmp(how, "unflushed")) {
        honest(file, from, bytes, at);
    } else if (!strcmp(how, "torn")) {
        honest(file, from, bytes / 1024 * 512, at);
    } else if (strcmp(how, "lost")) {
        int swap = held.from && held.bytes == bytes && !strcmp(how, "exchanged");
        if (held.from) {
            honest(held.file, held.from, held.bytes, swap ? at : held.at);
            off_t there = held.at;
            free(held.from);
            held.from = NULL;
            if (swap) honest(file, from, bytes, there);
        }
        if (!swap) hold(file, from, bytes, at);
    }
    pthread_mutex_unlock(&one_at_a_time);
    return bytes;
}

ssize_t pwritev64(int file, const struct iovec *parts, int count, off_t at) {
    size_t bytes = 0, done = 0;
    for (int one = 0; one < count; one++) bytes += parts[one].iov_len;
    char *whole = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    for (int one = 0; one < count; done += parts[one++].iov_len) memcpy(whole + done, parts[one].iov_base, parts[one].iov_len);
    ssize_t said = pwrite64(file, whole, bytes, at);
    free(whole);
    return said;
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t at) { return pwrite64(file, from, bytes, at); }

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) { return pwritev64(file, parts, count, at); }

int fdatasync(int file) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    return strcmp(getenv("LIE_HOW"), "unflushed") ? real(file) : 0;
}
