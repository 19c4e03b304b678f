/* Uses up its descriptors after cuInit, and makes its next calls of CUDA then. It repeats them when
 * descriptors are free again, and once more later. Each time it prints the codes of the three
 * calls, and the numbers in MiB. With "used", it makes the calls once before, too; with "loaded",
 * it asks for the total before. With "sysinfo", it prints the host's total instead, without free
 * descriptors. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

int cuInit(unsigned);
int cuDeviceTotalMem_v2(size_t *, int);
int cuCtxCreate_v2(void **, unsigned, int);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuMemAlloc_v2(unsigned long long *, size_t);

static void try_it(const char *when) {
    void *context;
    size_t free = 0, total = 0;
    unsigned long long memory;
    int made = cuCtxCreate_v2(&context, 0, 0), said = cuMemGetInfo_v2(&free, &total);
    int given = cuMemAlloc_v2(&memory, 1 << 30);
    printf("%s: %d %d %d free=%zu total=%zu\n", when, made, said, given, free >> 20, total >> 20);
}

static void show_host(void) {
    struct sysinfo host;
    int code = sysinfo(&host);
    printf("%d %lu\n", code, host.totalram >> 20);
}

int main(int argc, char **argv) {
    struct rlimit limit = {64, 64};
    int own[64], count = 0, copy;
    setrlimit(RLIMIT_NOFILE, &limit);
    int file = open("/dev/null", O_RDONLY);
    printf("init: %d\n", cuInit(0));
    fflush(stdout);
    size_t total;
    if (argc > 1 && !strcmp(argv[1], "used")) try_it("before");
    if (argc > 1 && !strcmp(argv[1], "loaded")) cuDeviceTotalMem_v2(&total, 0);
    if (argc > 1 && !strcmp(argv[1], "sysinfo")) {
        struct sysinfo host;
        sysinfo(&host);
        if (fork()) return wait(NULL) < 0; /* The child knows no reading of the host. */
    }
    while ((copy = dup(file)) >= 0) own[count++] = copy;
    if (argc > 1 && !strcmp(argv[1], "sysinfo")) {
        show_host();
        return 0;
    }
    try_it("full");
    while (count) close(own[--count]);
    try_it("free");
    sleep(2); /* The ledger is opened again at most once a second. */
    try_it("later");
    return 0;
}
