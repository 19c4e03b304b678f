/* Loads a model to the simulated device in tensors of 32 MiB, in the way that HOW names. Prints the
 * most of the model that was in the page cache during the load, and how much is there at the end.
 * quiet-HOW prints the time that the load took instead.
 * Usage: cuda-loader HOW MODEL [SECONDS BETWEEN TENSORS] */
#include "loader.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <time.h>

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemcpyHtoD_v2(uint64_t, const void *, size_t);
int cuMemcpyHtoDAsync_v2(uint64_t, const void *, size_t, void *);

#define TENSOR (32 * MIB)

static const char *model;
static void *context;
static size_t length;
static atomic_size_t most;
/* Of each thread: its memory on the device, and a checksum of what was copied there. */
static _Thread_local uint64_t device, sum;
static int quiet;
static double pause_seconds;

/* Reads what was copied to the device: the simulated device's memory is host memory. */
static void arrived(size_t bytes) {
    const uint64_t *words = (const uint64_t *)device;
    for (size_t at = 0; at < bytes / 8; at += 64)
        sum = sum * 31 + words[at];
    if (pause_seconds > 0) { /* Acts as a slow device: pages are examined while others load. */
        struct timespec time = {(time_t)pause_seconds, (long)((pause_seconds - (double)(time_t)pause_seconds) * 1e9)};
        nanosleep(&time, NULL);
    }
    if (!quiet) {
        size_t now = resident(model), before = most;
        while (now > before && !atomic_compare_exchange_weak(&most, &before, now)) {
        }
    }
}

static void copy(const unsigned char *from, size_t bytes) {
    if (cuMemcpyHtoDAsync_v2(device, from, bytes, NULL))
        die("cuMemcpyHtoDAsync_v2");
    arrived(bytes);
}

static size_t tensors(void) { return (length + TENSOR - 1) / TENSOR; }

static void tensor(const unsigned char *place, size_t number) {
    size_t at = number * TENSOR, rest = length - at;
    copy(place + at, rest < TENSOR ? rest : TENSOR);
}

static void pass(const unsigned char *place) {
    for (size_t number = 0; number < tensors(); number++)
        tensor(place, number);
}

/* Copies every tensor once, in a random order that is the same in every run. */
static void shuffled(const unsigned char *place) {
    size_t *order = malloc(tensors() * sizeof *order);
    for (size_t at = 0; at < tensors(); at++)
        order[at] = at;
    srand(1);
    for (size_t at = tensors() - 1; at > 0; at--) {
        size_t with = (size_t)rand() % (at + 1), kept = order[at];
        order[at] = order[with];
        order[with] = kept;
    }
    for (size_t at = 0; at < tensors(); at++)
        tensor(place, order[at]);
    free(order);
}

/* Reads as Python's os.preadv does. The first half of the file is read at the descriptor's own
 * position. */
static ssize_t read_vector(int fd, void *buffer, size_t part, size_t at) {
    struct iovec where = {buffer, part};
    if (at < length / 2)
        return preadv64v2(fd, &where, 1, -1, 0);
    return preadv2(fd, &where, 1, (off_t)at, 0);
}

static void by_reading(size_t part, int by_vector) {
    int fd = open(model, O_RDONLY);
    unsigned char *buffer = malloc(TENSOR);
    for (size_t done = 0; done < length;) {
        size_t filled = 0;
        ssize_t got;
        while (filled < TENSOR && (got = by_vector ? read_vector(fd, buffer + filled, part, done + filled)
                                                   : read(fd, buffer + filled, part)) > 0)
            filled += (size_t)got;
        copy(buffer, filled);
        done += filled;
    }
    close(fd);
    free(buffer);
}

static void start(void) {
    if (cuCtxSetCurrent(context) || cuMemAlloc_v2(&device, TENSOR))
        die("no memory on the device");
    memset((void *)device, 1, TENSOR);
}

#define MOST_THREADS 64

/* A thread's part of the file, which it reads or copies from a mapping. */
struct range {
    int fd;
    const unsigned char *place;
    size_t from, to;
    uint64_t sum;
};

static void *read_range(void *its) {
    struct range *range = its;
    unsigned char *buffer = malloc(TENSOR);
    start();
    for (size_t done = range->from; done < range->to;) {
        size_t filled = 0;
        ssize_t got;
        while (filled < TENSOR && (got = pread(range->fd, buffer + filled, MIB, (off_t)(done + filled))) > 0)
            filled += (size_t)got;
        copy(buffer, filled);
        done += filled;
    }
    free(buffer);
    range->sum = sum;
    return NULL;
}

static void *copy_range(void *its) {
    struct range *range = its;
    start();
    for (size_t done = range->from; done < range->to; done += TENSOR)
        copy(range->place + done, range->to - done < TENSOR ? range->to - done : TENSOR);
    range->sum = sum;
    return NULL;
}

/* Loads the file in several threads, each its own part, by reading or from one mapping. */
static void by_threads(size_t count, int mapped) {
    struct range ranges[MOST_THREADS];
    pthread_t threads[MOST_THREADS];
    if (count < 1 || count > MOST_THREADS)
        die("the number of threads");
    int fd = open(model, O_RDONLY);
    const unsigned char *place = mapped ? map(model, length, MAP_PRIVATE) : NULL;
    for (size_t number = 0; number < count; number++) {
        ranges[number] = (struct range){fd, place, length / count * number, length / count * (number + 1), 0};
        if (pthread_create(&threads[number], NULL, mapped ? copy_range : read_range, &ranges[number]))
            die("pthread_create");
    }
    for (size_t number = 0; number < count; number++) {
        pthread_join(threads[number], NULL);
        sum = sum * 31 + ranges[number].sum;
    }
    if (mapped)
        munmap((void *)place, length);
    close(fd);
}

/* Maps the file privately and writes to parts of it. The program makes these parts writable by
 * libc's mprotect, or by the system call, behind the library's back. */
static void written(int behind_our_back) {
    int fd = open(model, O_RDONLY);
    unsigned char *place = mmap(NULL, length, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    for (size_t number = 0; number < tensors(); number++) {
        unsigned char *at = place + number * TENSOR + 8 * MIB;
        long code = behind_our_back ? syscall(SYS_mprotect, at, MIB, PROT_READ | PROT_WRITE)
                                    : mprotect(at, MIB, PROT_READ | PROT_WRITE);
        if (code)
            die("mprotect");
        memset(at, 'w', MIB);
        if (behind_our_back)
            syscall(SYS_mprotect, at, MIB, PROT_READ);
    }
    for (int round = 0; round < 2; round++)
        pass(place);
    size_t lost = 0;
    for (size_t number = 0; number < tensors(); number++)
        for (size_t at = 0; at < MIB; at++)
            lost += place[number * TENSOR + 8 * MIB + at] != 'w';
    printf("lost %zu\n", lost);
    munmap(place, length);
}

/* Maps the file privately and writable, as PyTorch does. With `writes`, the program writes to some
 * pages while other pages are dropped. With `beside`, the mapping begins one page after the address
 * that the kernel chose. */
static void writable(int writes, int beside) {
    int fd = open(model, O_RDONLY);
    unsigned char *place = mmap(NULL, length + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (place != MAP_FAILED && beside)
        place = mmap(place + 4096, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0);
    close(fd);
    if (place == MAP_FAILED)
        die("mmap");
    size_t lost = 0;
    for (size_t number = 0; number < tensors(); number++) {
        if (writes)
            memset(place + number * TENSOR + 8 * MIB, 'w', MIB);
        tensor(place, number);
        if (writes) /* These pages were copied to the device a moment ago. */
            for (size_t at = 16 * MIB; at < 32 * MIB; at += 40960)
                place[number * TENSOR + at] = 'w';
    }
    if (writes)
        for (size_t number = 0; number < tensors(); number++) {
            for (size_t at = 0; at < MIB; at++)
                lost += place[number * TENSOR + 8 * MIB + at] != 'w';
            for (size_t at = 16 * MIB; at < 32 * MIB; at += 40960)
                lost += place[number * TENSOR + at] != 'w';
        }
    printf("lost %zu\n", lost);
    munmap(place - (beside ? 4096 : 0), length + 4096);
}

/* Maps other memory over pages that are being dropped. That memory must keep its contents. */
static void replaced(void) {
    size_t lost = 0;
    for (int round = 0; round < 6; round++) {
        unsigned char *place = (unsigned char *)map(model, length, MAP_PRIVATE);
        for (size_t number = 0; number < tensors(); number++) {
            tensor(place, number);
            if (number < 4)
                continue;
            unsigned char *old = place + (number - 4) * TENSOR;
            if (mmap(old, TENSOR, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != old)
                die("mmap");
            memset(old, 'm', TENSOR);
        }
        for (size_t at = 0; at < (tensors() - 4) * TENSOR; at += 512)
            lost += place[at] != 'm';
        munmap(place, length);
    }
    printf("lost %zu\n", lost);
}

/* Returns the bytes that were read from disks for this process. */
static unsigned long long from_disk(void) {
    unsigned long long bytes = 0;
    char line[128];
    FILE *file = fopen("/proc/self/io", "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "read_bytes: %llu", &bytes);
    if (file)
        fclose(file);
    return bytes;
}

int main(int count, char **words) {
    const char *how = words[1];
    model = words[2];
    length = size_of(model);
    pause_seconds = count > 3 ? atof(words[3]) : 0;
    quiet = !strncmp(how, "quiet-", 6);
    how += quiet ? 6 : 0;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0))
        die("cuda does not start");
    start();
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    if (!strcmp(how, "read"))
        by_reading(MIB, 0);
    else if (!strcmp(how, "preadv2"))
        by_reading(MIB, 1);
    else if (!strncmp(how, "threads-", 8))
        by_threads((size_t)atoi(how + 8), 0);
    else if (!strncmp(how, "mapped-threads-", 15))
        by_threads((size_t)atoi(how + 15), 1);
    else if (!strcmp(how, "read-small"))
        by_reading(8192, 0);
    else if (!strcmp(how, "written"))
        written(0);
    else if (!strcmp(how, "written-raw"))
        written(1);
    else if (!strncmp(how, "writable", 8))
        writable(!!strstr(how, "-written"), !!strstr(how, "-beside"));
    else if (!strcmp(how, "replaced"))
        replaced();
    else {
        const unsigned char *place = map(model, length, !strcmp(how, "shared") ? MAP_SHARED : MAP_PRIVATE);
        if (!strcmp(how, "again"))
            for (int round = 0; round < 4; round++)
                pass(place);
        if (!strcmp(how, "by-cpu"))
            for (size_t number = 0; number < tensors(); number++) {
                tensor(place, number);
                sum += touch(place, number * TENSOR);
            }
        if (!strcmp(how, "shuffled"))
            shuffled(place);
        else
            pass(place);
        if (!quiet)
            printf("mapped %zu MiB\n", resident(model) / MIB);
        munmap((void *)place, length);
    }
    clock_gettime(CLOCK_MONOTONIC, &after);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("sum %016llx\n", (unsigned long long)sum);
    if (quiet)
        printf("seconds %.3f cpu %.3f disk %llu\n",
               (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9,
               (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                   (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6,
               from_disk());
    else
        printf("peak %zu MiB, end %zu MiB\n", most / MIB, resident(model) / MIB);
    return 0;
}
