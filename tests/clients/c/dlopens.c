// Loads the libraries that its arguments name, and prints whether that worked.
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **names) {
    for (int at = 1; at < count; at++) {
        void *loaded = dlopen(names[at], RTLD_NOW | RTLD_GLOBAL);
        printf("%s\n", loaded ? "loaded" : dlerror());
    }
    return 0;
}
