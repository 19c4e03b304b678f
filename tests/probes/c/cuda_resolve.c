/* cuGetProcAddress, reached by every route (also through itself), and the entry points that it
 * returns. */
#include "probe.h"

typedef int (*mem_get_info)(size_t *, size_t *);
int cuGetProcAddress(const char *, void **, int, uint64_t);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
int cuGetProcAddress_v2_ptsz(const char *, void **, int, uint64_t, int *);

static void show(const char *api, int code, void *found) {
    size_t free = 1, total = 1;
    if (found)
        code |= ((mem_get_info)found)(&free, &total);
    printf("%s %d total=%zu free=%zu\n", api, code, total, free);
}

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    start_cuda();
    void *found = NULL;
    int status = -1;
    int code = REACH(CUDA, cuGetProcAddress, "cuGetProcAddress", 11030)("cuMemGetInfo", &found, 11030, 0);
    show("cuGetProcAddress", code, found);
    code = REACH(CUDA, cuGetProcAddress_v2, "cuGetProcAddress", 12000)("cuMemGetInfo", &found, 12000, 0, &status);
    show("cuGetProcAddress_v2", code | status, found);
    /* The twin is reached by its own name only, because no program sets flags for all its
     * look-ups. */
    if (!strcmp(route, "procaddress"))
        route = "dlsym";
    code = REACH(CUDA, cuGetProcAddress_v2_ptsz, NULL, 0)("cuMemGetInfo", &found, 12000, 2, &status);
    show("cuGetProcAddress_v2_ptsz", code | status, found);
    /* For a name that the library does not know, it answers as the driver does. */
    found = &found;
    code = cuGetProcAddress_v2("cuNoSuchThing", &found, 12000, 0, &status);
    printf("unknown %d status=%d null=%d\n", code, status, !found);
    code = cuGetProcAddress_v2("", &found, 0, 0, &status);
    printf("empty %d status=%d null=%d\n", code, status, !found);
    return 0;
}
