/* The driver's library is closed and opened again, at the same address and at another, and two
 * copies are open at the same time. The first argument is the path of another copy of the
 * driver. The program is not linked to any driver. */
#include "probe.h"
#include <sys/mman.h>

typedef int (*mem_get_info)(size_t *, size_t *);

static void ask(void *library, const char *when) {
    int (*init)(unsigned) = dlsym(library, "cuInit");
    int (*retain)(void **, int) = dlsym(library, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = dlsym(library, "cuCtxSetCurrent");
    mem_get_info ask = dlsym(library, "cuMemGetInfo_v2");
    void *context = NULL;
    size_t free = 1, total = 1;
    int code = init(0) | retain(&context, 0) | set(context) | ask(&free, &total);
    printf("%s %d total=%zu\n", when, code, total);
}

int main(int count, char **words) {
    for (int turn = 0; turn < 5; turn++) {
        void *library = dlopen(CUDA, RTLD_NOW);
        if (!library)
            die(dlerror());
        ask(library, "turn");
        dlclose(library);
        /* This mapping makes the next copy lie at another address. */
        if (turn & 1)
            mmap(NULL, 64u << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    void *first = dlopen(CUDA, RTLD_NOW);
    ask(first, "first");
    if (count > 1) {
        void *second = dlopen(words[1], RTLD_NOW);
        if (!second)
            die(dlerror());
        ask(second, second == first ? "the same" : "second");
        ask(first, "first");
    }
    return 0;
}
