/* A disk that can be told to fail, and that remembers: preloaded before the C library.
 *
 * disk_watch(root, log): write every change below `root` to the file `log`, in order.
 * disk_fail(n, code): let the n-th change from now on fail with errno `code`; 0 lets none fail.
 * disk_count(): changes since disk_fail.
 *
 * A log entry is one byte for what happened, then two numbers and two texts, each text with its length before it:
 *   W path offset data | T path size | S path | R from to | U path | C path | M path
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char root[PATH_MAX];
static int log_fd = -1;
static long counted, fail_at;
static int fail_code;

void disk_watch(const char *folder, const char *log) {
    snprintf(root, sizeof root, "%s", folder);
    log_fd = log[0] ? (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
}
void disk_fail(long n, int code) { counted = 0; fail_at = n; fail_code = code; }
long disk_count(void) { return counted; }

static int below(const char *path) { size_t n = strlen(root); return n && !strncmp(path, root, n); }

static const char *path_of(int fd, char *buffer) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    long n = syscall(SYS_readlinkat, AT_FDCWD, name, buffer, PATH_MAX - 1);
    buffer[n > 0 ? n : 0] = 0;
    return buffer;
}

static const char *absolute(const char *path, char *buffer) {
    if (path[0] == '/') { snprintf(buffer, PATH_MAX, "%s", path); return buffer; }
    char here[PATH_MAX];
    if (!getcwd(here, sizeof here)) here[0] = 0;
    snprintf(buffer, PATH_MAX, "%s/%s", here, path);
    return buffer;
}

static void put(const void *data, size_t n) { if (n && syscall(SYS_write, log_fd, data, n) < 0) _exit(99); }

static void note(char what, const char *path, int64_t number, const char *other, int64_t size) {
    if (log_fd < 0) return;
    int64_t length = (int64_t)strlen(path);
    put(&what, 1); put(&number, 8); put(&length, 8); put(path, (size_t)length); put(&size, 8);
    put(other, (size_t)size);
}

/* Whether this change is the one that fails. */
static int fails(void) {
    if (++counted != fail_at) return 0;
    errno = fail_code;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t offset) {
    char path[PATH_MAX];
    int ours = below(path_of(fd, path));
    if (ours && fails()) return -1;
    ssize_t done = REAL(pwrite64)(fd, data, n, offset);
    if (ours && done > 0) note('W', path, offset, data, done);
    return done;
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t offset) { return pwrite64(fd, data, n, offset); }

ssize_t write(int fd, const void *data, size_t n) {
    char path[PATH_MAX];
    int ours = fd > 2 && below(path_of(fd, path));
    if (ours && fails()) return -1;
    struct stat facts;
    int appends = ours && (fcntl(fd, F_GETFL) & O_APPEND) && !fstat(fd, &facts);
    int64_t offset = !ours ? 0 : appends ? facts.st_size : lseek(fd, 0, SEEK_CUR);
    ssize_t done = REAL(write)(fd, data, n);
    if (ours && done > 0) note('W', path, offset, data, done);
    return done;
}

int ftruncate64(int fd, off64_t size) {
    char path[PATH_MAX];
    int ours = below(path_of(fd, path));
    if (ours && fails()) return -1;
    int done = REAL(ftruncate64)(fd, size);
    if (ours && !done) note('T', path, size, "", 0);
    return done;
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

static int synced(int fd, int (*real)(int)) {
    char path[PATH_MAX];
    int ours = below(path_of(fd, path));
    if (ours && fails()) return -1;
    int done = real(fd);
    if (ours && !done) note('S', path, 0, "", 0);
    return done;
}
int fsync(int fd) { return synced(fd, REAL(fsync)); }
int fdatasync(int fd) { return synced(fd, REAL(fdatasync)); }

int rename(const char *from, const char *to) {
    char a[PATH_MAX], b[PATH_MAX];
    absolute(from, a);
    absolute(to, b);
    int ours = below(a) || below(b);
    if (ours && fails()) return -1;
    int done = REAL(rename)(from, to);
    if (ours && !done) note('R', a, 0, b, (int64_t)strlen(b));
    return done;
}

int unlink(const char *path) {
    char a[PATH_MAX];
    int ours = below(absolute(path, a)), done = REAL(unlink)(path);
    if (ours && !done) note('U', a, 0, "", 0);
    return done;
}

int mkdir(const char *path, mode_t mode) {
    char a[PATH_MAX];
    int ours = below(absolute(path, a));
    if (ours && fails()) return -1;
    int done = REAL(mkdir)(path, mode);
    if (ours && !done) note('M', a, 0, "", 0);
    return done;
}

static int opened(const char *path, int flags, mode_t mode, int (*real)(const char *, int, ...)) {
    char a[PATH_MAX];
    int changes = (flags & (O_CREAT | O_TRUNC)) && below(absolute(path, a));
    struct stat facts;
    int is_new = changes && stat(path, &facts);
    if (changes && (is_new || (flags & O_TRUNC)) && fails()) return -1;
    int fd = real(path, flags, mode);
    if (fd >= 0 && is_new) note('C', a, 0, "", 0);
    else if (fd >= 0 && changes && (flags & O_TRUNC)) note('T', a, 0, "", 0);
    return fd;
}
#define MODE(flags) mode_t mode = 0; if ((flags) & O_CREAT) { va_list p; va_start(p, flags); mode = va_arg(p, mode_t); va_end(p); }
int open(const char *path, int flags, ...) { MODE(flags) return opened(path, flags, mode, REAL(open)); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(path, flags, mode, REAL(open64)); }
