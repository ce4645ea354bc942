/* A disk that fails, for LD_PRELOAD: calls that write to some files fail, or kill the process, from the n-th on.
 *
 * What is to fail stands in a file of one page, MQPROTO_HURT_DISK, which the harness maps as well (disk.py): it may arm
 * it while the process runs. The calls are those that SQLite and the store make; all others pass.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITES = 1, GROWTH = 2, FLUSHES = 4, NAMES = 8 };

struct orders {
    int armed;      /* whether anything is counted */
    int kinds;      /* which calls: WRITES and the others */
    int countdown;  /* how many of them pass */
    int error;      /* errno of those that fail; 0 kills the process instead */
    int lasting;    /* whether all that follow fail as well, or only one does */
    int calls;      /* how many were counted */
    int failures;   /* how many failed */
    char begins[PATH_MAX / 2]; /* how the paths of the files begin that this is about */
};

static struct orders *orders;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("MQPROTO_HURT_DISK");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof(struct orders), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) orders = page;
    close(file);
}

/* Whether this call fails; then errno says why. */
static int is_due(int kind, const char *path) {
    if (!orders || !orders->armed || !(orders->kinds & kind)) return 0;
    if (strncmp(path, orders->begins, strlen(orders->begins)) != 0) return 0;
    __sync_fetch_and_add(&orders->calls, 1);
    int left = __sync_fetch_and_sub(&orders->countdown, 1);
    if (left > 0 || (left < 0 && !orders->lasting)) return 0;
    __sync_fetch_and_add(&orders->failures, 1);
    errno = orders->error;
    return 1;
}

/* The same; one that kills does not return. */
static int fails(int kind, const char *path) {
    if (!is_due(kind, path)) return 0;
    if (orders->error == 0) kill(getpid(), SIGKILL);
    return 1;
}

static int file_is_due(int kind, int file) {
    if (!orders || !orders->armed) return 0;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return is_due(kind, path);
}

static int file_fails(int kind, int file) {
    if (!file_is_due(kind, file)) return 0;
    if (orders->error == 0) kill(getpid(), SIGKILL);
    return 1;
}

static off_t total(const struct iovec *parts, int count) {
    off_t size = 0;
    while (count-- > 0) size += (off_t)parts[count].iov_len;
    return size;
}

/* A SIGKILL that comes in the middle of a write: the system looks for one before each page, and leaves the rest out. */
static void die_within(int file, const struct iovec *parts, int count, off_t at) {
    off_t page = sysconf(_SC_PAGESIZE), end = at + total(parts, count);
    off_t pages = end > at ? (end - 1) / page - at / page : 0;
    off_t chosen = orders->calls % (pages + 1);
    end = chosen ? (at / page + chosen) * page : at;
    for (; count > 0 && at < end; parts++, count--) {
        off_t size = (off_t)parts->iov_len < end - at ? (off_t)parts->iov_len : end - at;
        syscall(SYS_pwrite64, file, parts->iov_base, (size_t)size, at);
        at += size;
    }
    kill(getpid(), SIGKILL);
}

/* A write that makes the file longer needs room; on a disk that writes nothing in place every write does. */
static int write_fails(int file, const struct iovec *parts, int count, off_t at) {
    if (!orders || !orders->armed) return 0;
    struct stat status;
    int is_longer = (orders->kinds & GROWTH) && fstat(file, &status) == 0 && at + total(parts, count) > status.st_size;
    if (!file_is_due(is_longer ? GROWTH : WRITES, file)) return 0;
    if (orders->error == 0) die_within(file, parts, count, at);
    return 1;
}

static int size_fails(int file, off_t end) {
    struct iovec none = {NULL, 0};
    return write_fails(file, &none, 1, end);
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t pwrite(int file, const void *data, size_t count, off_t at) {
    REAL(pwrite);
    struct iovec whole = {(void *)data, count};
    return write_fails(file, &whole, 1, at) ? -1 : real(file, data, count, at);
}

ssize_t pwrite64(int file, const void *data, size_t count, off64_t at) {
    REAL(pwrite64);
    struct iovec whole = {(void *)data, count};
    return write_fails(file, &whole, 1, at) ? -1 : real(file, data, count, at);
}

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) {
    REAL(pwritev);
    return write_fails(file, parts, count, at) ? -1 : real(file, parts, count, at);
}

ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t at) {
    REAL(pwritev64);
    return write_fails(file, parts, count, at) ? -1 : real(file, parts, count, at);
}

ssize_t pwritev2(int file, const struct iovec *parts, int count, off_t at, int flags) {
    REAL(pwritev2);
    return write_fails(file, parts, count, at) ? -1 : real(file, parts, count, at, flags);
}

ssize_t pwritev64v2(int file, const struct iovec *parts, int count, off64_t at, int flags) {
    REAL(pwritev64v2);
    return write_fails(file, parts, count, at) ? -1 : real(file, parts, count, at, flags);
}

ssize_t write(int file, const void *data, size_t count) {
    REAL(write);
    return file_fails(orders && (orders->kinds & GROWTH) ? GROWTH : WRITES, file) ? -1 : real(file, data, count);
}

int posix_fallocate(int file, off_t at, off_t count) {
    REAL(posix_fallocate);
    return size_fails(file, at + count) ? errno : real(file, at, count);
}

int posix_fallocate64(int file, off64_t at, off64_t count) {
    REAL(posix_fallocate64);
    return size_fails(file, at + count) ? errno : real(file, at, count);
}

int ftruncate(int file, off_t size) {
    REAL(ftruncate);
    return size_fails(file, size) ? -1 : real(file, size);
}

int ftruncate64(int file, off64_t size) {
    REAL(ftruncate64);
    return size_fails(file, size) ? -1 : real(file, size);
}

int fsync(int file) {
    REAL(fsync);
    return file_fails(FLUSHES, file) ? -1 : real(file);
}

int fdatasync(int file) {
    REAL(fdatasync);
    return file_fails(FLUSHES, file) ? -1 : real(file);
}

static int open_fails(const char *path, int flags) {
    if (!orders || !orders->armed) return 0;
    if (flags & O_CREAT && access(path, F_OK) != 0) return fails(NAMES, path);
    /* A file system that is read-only opens nothing for writing. */
    return orders->error == EROFS && (flags & O_ACCMODE) != O_RDONLY && fails(NAMES, path);
}

#define OPEN(name)                                                   \
    int name(const char *path, int flags, ...) {                     \
        REAL(name);                                                  \
        va_list rest;                                                \
        va_start(rest, flags);                                       \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                \
        return open_fails(path, flags) ? -1 : real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

static int name_fails(const char *path) {
    return orders && orders->armed && (orders->error == EROFS || orders->error == 0 || orders->error == EIO)
           && fails(NAMES, path);
}

int unlink(const char *path) {
    REAL(unlink);
    return name_fails(path) ? -1 : real(path);
}

int rename(const char *path, const char *new) {
    REAL(rename);
    return name_fails(path) ? -1 : real(path, new);
}
