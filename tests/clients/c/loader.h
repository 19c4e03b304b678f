/* Functions that the programs that load models share: they measure the page cache, count
 * descriptors, read and map files, and exit. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

__attribute__((unused)) static void die(const char *what) {
    perror(what);
    exit(2);
}

__attribute__((unused)) static size_t size_of(const char *path) {
    struct stat stat;
    if (syscall(SYS_newfstatat, AT_FDCWD, path, &stat, 0))
        die(path);
    return (size_t)stat.st_size;
}

/* Returns how many bytes of a file are in the page cache, by system calls that no preload sees. The
 * kernel reports the truth only to the owner of the file. */
__attribute__((unused)) static size_t resident(const char *path) {
    size_t length = size_of(path), pages = (length + 4095) / 4096, count = 0;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
    void *place = (void *)syscall(SYS_mmap, NULL, length, PROT_READ, MAP_SHARED, fd, 0);
    unsigned char *there = malloc(pages);
    if (fd < 0 || place == MAP_FAILED || syscall(SYS_mincore, place, length, there))
        die("mincore");
    for (size_t at = 0; at < pages; at++)
        count += there[at] & 1;
    free(there);
    syscall(SYS_munmap, place, length);
    syscall(SYS_close, fd);
    return count * 4096;
}

/* Returns how much of a file is in the page cache: "none", a number of MiB, or "all".
 * "all" is more than three quarters of the file, because the kernel itself may evict some of it.
 * "none" is up to a sixteenth, because pages that the kernel is reading ahead cannot be dropped. */
__attribute__((unused)) static const char *cached(const char *path) {
    static char text[32];
    size_t bytes = resident(path);
    if (bytes <= size_of(path) / 16)
        return "none";
    if (bytes > size_of(path) / 4 * 3)
        return "all";
    snprintf(text, sizeof text, "%zu MiB", bytes / MIB);
    return text;
}

/* Returns the number of open descriptors of this process. */
__attribute__((unused)) static int open_descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < 4096; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

/* Reads one byte of every page. */
__attribute__((unused)) static uint64_t touch(const volatile unsigned char *place, size_t length) {
    uint64_t sum = 0;
    for (size_t at = 0; at < length; at += 4096)
        sum = sum * 31 + place[at];
    return sum;
}

__attribute__((unused)) static const unsigned char *map(const char *path, size_t length, int kind) {
    int fd = open(path, O_RDONLY);
    void *place = mmap(NULL, length, PROT_READ, kind, fd, 0);
    if (fd < 0 || place == MAP_FAILED || close(fd))
        die("map");
    return place;
}

/* Returns whether another process finds a file locked. The library must not change that, neither
 * while the file is mapped nor after it is unmapped. */
__attribute__((unused)) static int locked_for_others(const char *path) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        struct flock lock = {.l_type = F_WRLCK};
        int fd = open(path, O_RDWR);
        _exit(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK);
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}
