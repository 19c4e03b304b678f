/* A stand-in for PyTorch's native allocator, under the name of its library. It does only what that
 * allocator does when the device has no memory left, in the order of PyTorch's source. */
#include <stddef.h>
#include <stdint.h>

int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cuMemCreate(unsigned long long *, size_t, const void *, unsigned long long);
int cuMemRelease(unsigned long long);

enum { BLOCKS = 256, OUT_OF_MEMORY = 2 };

struct block {
    uint64_t at;
    size_t bytes;
    int used, there;
};

struct statistics {
    unsigned long long retries, failures, reserved, freed;
};

static struct block blocks[BLOCKS];
struct statistics c10_statistics;
int c10_max_split_size, c10_expandable_segments, c10_capturing;

static int grow(uint64_t *at, size_t bytes)
{
    struct {
        int type, handles, location, id;
        void *windows;
        unsigned char flags[8];
    } properties = {1, 0, 1, 0, NULL, {0}};
    unsigned long long handle = 0;
    void *place = NULL;
    int code;
    if (c10_expandable_segments) {
        code = cuMemCreate(&handle, bytes, &properties, 0);
        *at = handle;
    } else {
        code = cudaMalloc(&place, bytes);
        *at = (uint64_t)(uintptr_t)place;
    }
    if (!code)
        c10_statistics.reserved += bytes;
    return code;
}

static int let_go(struct block *block)
{
    int code = c10_expandable_segments ? cuMemRelease(block->at) : cudaFree((void *)(uintptr_t)block->at);
    if (!code) {
        c10_statistics.reserved -= block->bytes;
        c10_statistics.freed += block->bytes;
        block->there = 0;
    }
    return code;
}

/* Frees unused blocks, the largest first, until `enough` bytes are freed or none is left. */
static int release_cached_blocks(size_t enough)
{
    size_t released = 0;
    while (released < enough) {
        struct block *largest = NULL;
        for (int i = 0; i < BLOCKS; i++)
            if (blocks[i].there && !blocks[i].used && (!largest || blocks[i].bytes > largest->bytes))
                largest = &blocks[i];
        if (!largest)
            return 0;
        int code = let_go(largest);
        if (code)
            return code;
        released += largest->bytes;
    }
    return 0;
}

/* Stores the number of a block in `number` and returns 0, or returns the code of the error that
 * PyTorch would throw. */
int c10_malloc(int *number, size_t bytes)
{
    int fits = -1, empty = -1;
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].there && !blocks[i].used && blocks[i].bytes >= bytes && (fits < 0 || blocks[i].bytes < blocks[fits].bytes))
            fits = i;
        if (!blocks[i].there)
            empty = i;
    }
    if (fits >= 0) {
        blocks[fits].used = 1;
        *number = fits;
        return 0;
    }
    if (empty < 0)
        return 1;
    uint64_t at = 0;
    int code = grow(&at, bytes);
    if (code == OUT_OF_MEMORY && c10_max_split_size) {
        /* PyTorch does not check for a graph capture before this retry. */
        c10_statistics.retries++;
        code = release_cached_blocks(bytes);
        if (code)
            return code;
        code = grow(&at, bytes);
    }
    if (code == OUT_OF_MEMORY && !c10_capturing) {
        c10_statistics.retries++;
        code = release_cached_blocks(SIZE_MAX);
        if (code)
            return code;
        code = grow(&at, bytes);
    }
    if (code) {
        c10_statistics.failures += code == OUT_OF_MEMORY;
        return code;
    }
    blocks[empty] = (struct block){at, bytes, 1, 1};
    *number = empty;
    return 0;
}

void c10_free(int number) { blocks[number].used = 0; }
