/* Allocates through the stand-in for PyTorch's allocator, without it, and while it captures a
 * graph. Each line of standard input is one operation. Answers have the form of the worker's. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuStreamCreate(void **, unsigned);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamEndCapture(void *, void **);
int cuMemGetInfo_v2(size_t *, size_t *);
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int c10_malloc(int *, size_t);
void c10_free(int);
extern int c10_max_split_size, c10_expandable_segments, c10_capturing;
extern struct {
    unsigned long long retries, failures, reserved, freed;
} c10_statistics;

enum { THINGS = 256, SMALL = 4096, STREAM_CAPTURE_WRONG_THREAD = 908 };

static int tensors[THINGS];
static void *plain[THINGS];
static void *stream, *graph;

/* The pieces that the last churn allocated. */
static struct {
    char **pieces;
    size_t count;
} churned;

/* Returns how many MiB of these pieces are still resident. That is the memory that malloc keeps,
 * and no other memory of the process. */
static size_t kept(void)
{
    size_t pages = 0;
    for (size_t i = 0; i < churned.count; i++) {
        unsigned char there = 0;
        void *page = (void *)((uintptr_t)churned.pieces[i] & ~(uintptr_t)(SMALL - 1));
        pages += mincore(page, SMALL, &there) == 0 && (there & 1);
    }
    return pages * SMALL >> 20;
}

/* Allocates many small pieces and frees all but the last. malloc keeps the freed ones. */
static void churn(size_t mebibytes)
{
    if (churned.count)
        munmap(churned.pieces, churned.count * sizeof *churned.pieces);
    size_t count = mebibytes << 20 >> 12;
    char **pieces = mmap(NULL, count * sizeof *pieces, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < count; i++)
        memset(pieces[i] = malloc(SMALL - 16), 1, SMALL - 16);
    for (size_t i = 0; i + 1 < count; i++)
        free(pieces[i]);
    plain[THINGS - 1] = pieces[count - 1];
    churned.pieces = pieces;
    churned.count = count;
}

/* Ends the capture, in a thread of its own. */
static void *end(void *code)
{
    *(int *)code = cuStreamEndCapture(stream, &graph);
    return NULL;
}

static int operate(const char *operation, size_t *n, char *said)
{
    void *context = NULL;
    size_t free_bytes = 0, total = 0;
#define IS(name) (!strcmp(operation, name))
    if (IS("start")) {
        int code = cuInit(0);
        if (!code)
            code = cuDevicePrimaryCtxRetain(&context, 0);
        if (!code)
            code = cuCtxSetCurrent(context);
        return code ? code : cuStreamCreate(&stream, 0);
    }
    if (IS("tensor"))
        return c10_malloc(&tensors[n[0] % THINGS], n[1]);
    if (IS("drop")) {
        c10_free(tensors[n[0] % THINGS]);
        return 0;
    }
    if (IS("plain"))
        return cudaMalloc(&plain[n[0] % THINGS], n[1]);
    if (IS("begin")) {
        c10_capturing = 1;
        return cuStreamBeginCapture_v2(stream, (int)n[0]);
    }
    if (IS("end")) {
        c10_capturing = 0;
        return cuStreamEndCapture(stream, &graph);
    }
    if (IS("end-elsewhere")) {
        pthread_t thread;
        int code = -1;
        if (!pthread_create(&thread, NULL, end, &code))
            pthread_join(thread, NULL);
        c10_capturing = code == STREAM_CAPTURE_WRONG_THREAD;
        return code;
    }
    if (IS("split")) {
        c10_max_split_size = (int)n[0];
        return 0;
    }
    if (IS("expandable")) {
        c10_expandable_segments = (int)n[0];
        return 0;
    }
    if (IS("statistics")) {
        sprintf(said, " %llu %llu %llu %llu", c10_statistics.retries, c10_statistics.failures, c10_statistics.reserved,
                c10_statistics.freed);
        return 0;
    }
    if (IS("churn")) {
        churn(n[0]);
        return 0;
    }
    if (IS("kept")) {
        sprintf(said, " %zu", kept());
        return 0;
    }
    if (IS("info")) {
        int code = cuMemGetInfo_v2(&free_bytes, &total);
        sprintf(said, " %zu %zu", free_bytes, total);
        return code;
    }
    return -1;
}

int main(void)
{
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        char operation[32] = "", said[128] = "";
        size_t n[2] = {0, 0};
        sscanf(line, "%*d %31s %zu %zu", operation, &n[0], &n[1]);
        int code = operate(operation, n, said);
        printf("0 %s %d%s\n", operation, code, said);
        fflush(stdout);
    }
    return 0;
}
