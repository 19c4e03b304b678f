/* One life of a program in a slice: it starts the driver, compares the answers of CUDA and NVML,
 * allocates up to the limit and beyond it, frees everything, and ends.
 *
 * Usage of the programs that include this: PROGRAM strictly|safely LIMIT [...]. Judged strictly,
 * every call has to succeed and every number has to be exact. Judged safely, a call may fail,
 * because a fault was injected; but no answer may be wrong, and no memory is granted beyond the
 * limit. Exit status: 0 all went well, 3 a call failed (safely only), 4 an answer was wrong. */
#ifndef LIFE_H
#define LIFE_H

#include "worker.h"
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LIVED, REFUSED = 3, WRONG = 4 };

static int judged_strictly;
static word limit;

/* Writes a line to standard error without the C library's buffers, which need stack and memory. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char line[160];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    if (write(STDERR_FILENO, line, (size_t)length) < 0)
        return;
}

static int wrong(const char *what, word is, word expected)
{
    say("%s: %llu, not %llu\n", what, is, expected);
    return WRONG;
}

/* The outcome of a call that has failed. */
static int failed(const char *call, int code)
{
    if (judged_strictly)
        say("%s fails with %d\n", call, code);
    return judged_strictly ? WRONG : REFUSED;
}

#define TRY(call)           \
    do {                    \
        int tried_ = (call); \
        if (tried_)         \
            return tried_;  \
    } while (0)

/* The free memory that CUDA and NVML report. This process holds `held`. */
static int query(word held, word *free_memory)
{
    size_t free = 0, total = 0;
    int code = cuMemGetInfo_v2(&free, &total);
    if (code)
        return failed("cuMemGetInfo_v2", code);
    if (total != limit)
        return wrong("TOTAL by CUDA", total, limit);
    if (free > limit - held)
        return wrong("FREE by CUDA", free, limit - held);
    *free_memory = free;
    void *device;
    struct nvml_memory memory = {0, 0, 0};
    code = nvmlInit_v2();
    if (!code)
        code = nvmlDeviceGetHandleByIndex_v2(0, &device);
    if (!code)
        code = nvmlDeviceGetMemoryInfo(device, &memory);
    if (code)
        return failed("NVML", code);
    if (memory.total != limit)
        return wrong("TOTAL by NVML", memory.total, limit);
    if (memory.free + memory.used != memory.total)
        return wrong("USED + FREE by NVML", memory.free + memory.used, memory.total);
    if (judged_strictly && memory.free != free)
        return wrong("FREE by NVML", memory.free, free);
    if (memory.free > limit - held)
        return wrong("FREE by NVML", memory.free, limit - held);
    return LIVED;
}

/* Allocates all that is free, and is refused one granule more. */
static int fill(word held, word free)
{
    enum { MOST = 64 };
    static const word granule = (word)2 << 20;
    word at[MOST], sum = held;
    int count = 0, outcome = LIVED;
    word wanted = free / granule * granule;
    int code = wanted ? cuMemAlloc_v2(&at[count], wanted) : 0;
    if (!code && wanted) {
        count++;
        sum += wanted;
    } else if (code)
        outcome = failed("an allocation of all that is free", code);
    /* Nothing more may be granted, and never more than the limit. */
    for (word bytes = judged_strictly ? granule : (word)1 << 30; count < MOST; count++, sum += bytes) {
        code = cuMemAlloc_v2(&at[count], bytes);
        if (code)
            break;
    }
    if (sum > limit)
        outcome = wrong("granted", sum, limit);
    if (judged_strictly && outcome == LIVED && code != 2)
        outcome = wrong("the code of a refusal", (word)code, 2);
    if (judged_strictly && outcome == LIVED && wanted && count != 1)
        outcome = wrong("allocations that were granted", (word)count, 1);
    while (count) {
        code = cuMemFree_v2(at[--count]);
        if (code && outcome == LIVED)
            outcome = failed("cuMemFree_v2", code);
    }
    return outcome;
}

/* Allocates and frees memory of several kinds, with a context. */
static int use(void)
{
    static const word large = (word)64 << 20;
    struct physical_properties properties = {1, 1, 1, 0, NULL, {0}};
    word before, after, memory, small, handle;
    int code;
    TRY(query(0, &before));
    if ((code = cuMemAlloc_v2(&memory, large)))
        return failed("cuMemAlloc_v2", code);
    int outcome = query(large, &after);
    if (!outcome && judged_strictly && after != before - large)
        outcome = wrong("FREE after an allocation", after, before - large);
    if (!outcome && (code = cuMemAlloc_v2(&small, 4096)))
        outcome = failed("cuMemAlloc_v2", code);
    else if (!outcome && (code = cuMemFree_v2(small)))
        outcome = failed("cuMemFree_v2", code);
    if (!outcome && (code = cuMemCreate(&handle, (size_t)4 << 20, &properties, 0)))
        outcome = failed("cuMemCreate", code);
    else if (!outcome && (code = cuMemRelease(handle)))
        outcome = failed("cuMemRelease", code);
    if (!outcome)
        outcome = fill(large, after);
    if ((code = cuMemFree_v2(memory)) && !outcome)
        outcome = failed("cuMemFree_v2", code);
    TRY(outcome);
    TRY(query(0, &after));
    if (judged_strictly && after != before)
        return wrong("FREE after all frees", after, before);
    return LIVED;
}

/* One whole life. */
static inline int live(void)
{
    void *context = NULL;
    int code = cuInit(0);
    if (code)
        return failed("cuInit", code);
    if ((code = cuDevicePrimaryCtxRetain(&context, 0)))
        return failed("cuDevicePrimaryCtxRetain", code);
    if ((code = cuCtxSetCurrent(context)))
        return failed("cuCtxSetCurrent", code);
    int outcome = use();
    if ((code = cuDevicePrimaryCtxRelease_v2(0)) && !outcome)
        outcome = failed("cuDevicePrimaryCtxRelease_v2", code);
    return outcome;
}

/* Reads the first two arguments. */
static void begin(int count, char **words)
{
    if (count < 3) {
        say("usage: %s strictly|safely LIMIT [...]\n", words[0]);
        _exit(2);
    }
    /* A mark for tracers: the faults begin here. */
    syscall(SYS_getpgid, 0);
    judged_strictly = !strcmp(words[1], "strictly");
    limit = strtoull(words[2], NULL, 10);
}

#endif
