/* dlsym answers as libc's does for every name that the library does not export, and dlerror
 * describes the look-up that the program made. */
#include "probe.h"

static void show(const char *what, void *found, void *wanted) {
    const char *error = dlerror();
    printf("%s %s error=%s\n", what, !found ? "null" : found == wanted ? "same" : "other", error ? error : "none");
}

int main(void) {
    void *self = dlopen(NULL, RTLD_NOW), *libc = dlopen("libc.so.6", RTLD_NOW);
    show("malloc", dlsym(RTLD_DEFAULT, "malloc"), (void *)malloc);
    show("next malloc", dlsym(RTLD_NEXT, "malloc"), (void *)malloc);
    show("printf", dlsym(libc, "printf"), (void *)printf);
    show("calloc", dlsym(self, "calloc"), (void *)calloc);
    show("strcmp", dlsym(libc, "no_such_function"), NULL);
    show("cuNothing", dlsym(RTLD_DEFAULT, "cuNothing"), NULL);
    show("nvmlNothing", dlsym(self, "nvmlNothing"), NULL);
    show("cuMemGetInfo", dlsym(libc, "cuMemGetInfo_v2"), NULL);
    show("empty", dlsym(self, ""), NULL);
    show("c", dlsym(self, "c"), NULL);
    show("dlsym", dlsym(libc, "dlsym"), (void *)dlsym);
    show("dlopen", dlsym(libc, "dlopen"), (void *)dlopen);
    show("dlmopen", dlsym(RTLD_DEFAULT, "dlmopen"), (void *)dlmopen);
    show("missing library", dlopen("libno-such-library.so.7", RTLD_NOW), NULL);
    show("missing in new", dlmopen(LM_ID_NEWLM, "libno-such-library.so.7", RTLD_NOW), NULL);
    /* There are 16 namespaces. Failed attempts must not use them up. */
    for (int i = 0; i < 40; i++)
        if (dlmopen(LM_ID_NEWLM, "libno-such-library.so.7", RTLD_NOW))
            return 1;
    show("missing again", dlmopen(LM_ID_NEWLM, "libno-such-library.so.7", RTLD_NOW), NULL);
    return 0;
}
