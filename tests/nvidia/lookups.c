/* Prints every answer of cuGetProcAddress: for each base name on standard input, each flag and each
 * version of the list below. Consecutive versions with the same answer share one entry.
 * Usage: lookups LIBCUDA <names. LIBCUDA is what dlopen is given.
 *
 * A line: NAME FLAGS FUNCTION VERSION:RC/STATUS/SYMBOL ... FUNCTION is 2 for cuGetProcAddress_v2, 1
 * for cuGetProcAddress, n for cuGetProcAddress_v2 without a status. SYMBOL is the exported name at
 * the address, "own:" before it for the preload library's, "-" for NULL, "unwritten" where the
 * caller's pointer was left alone, "hidden" for an address that no library exports. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int versions[] = {0,     1,     1999,  2000,  2020,  2030,  3000,  3010,  3020,  3999,  4000,  4010,
                               4020,  5000,  5050,  6000,  6050,  7000,  7050,  8000,  9000,  9020,  10000, 10010,
                               10020, 11000, 11010, 11020, 11030, 11040, 11050, 11060, 11070, 11080, 12000, 12010,
                               12020, 12030, 12040, 12050, 12060, 12080, 12090, 13000, 13010, 13020, 99999, -1};
static void *const untouched = (void *)0x5117;

typedef int (*get_v2)(const char *, void **, int, unsigned long long, int *);
typedef int (*get_v1)(const char *, void **, int, unsigned long long);

static void symbol(void *address, char *text, size_t room) {
    Dl_info info;
    if (address == NULL)
        snprintf(text, room, "-");
    else if (address == untouched)
        snprintf(text, room, "unwritten");
    else if (!dladdr(address, &info) || info.dli_sname == NULL || info.dli_saddr != address)
        snprintf(text, room, "hidden");
    else
        snprintf(text, room, "%s%s", strstr(info.dli_fname, "libgpuslice") ? "own:" : "", info.dli_sname);
}

int main(int count, char **arguments) {
    if (count != 2)
        return 125;
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    get_v2 v2 = (get_v2)dlsym(library, "cuGetProcAddress_v2");
    get_v1 v1 = (get_v1)dlsym(library, "cuGetProcAddress");
    if (v2 == NULL || v1 == NULL)
        return 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    init(0); /* without a kernel driver this fails; look-ups work all the same */

    char name[128];
    while (fgets(name, sizeof name, stdin) != NULL) {
        name[strcspn(name, "\n")] = 0;
        for (unsigned long long flags = 0; flags < 3; flags++) {
            for (const char *way = "21n"; *way != 0; way++) {
                char last[256] = "";
                printf("%s %llu %c", *name ? name : "\"\"", flags, *way);
                for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
                    void *found = untouched;
                    int status = -1, rc;
                    if (*way == '1')
                        rc = v1(name, &found, versions[i], flags);
                    else
                        rc = v2(name, &found, versions[i], flags, *way == '2' ? &status : NULL);
                    char text[200], answer[256];
                    symbol(found, text, sizeof text);
                    snprintf(answer, sizeof answer, "%d/%d/%s", rc, status, text);
                    if (strcmp(answer, last) != 0)
                        printf(" %d:%s", versions[i], answer);
                    snprintf(last, sizeof last, "%s", answer);
                }
                putchar('\n');
            }
        }
    }
    return 0;
}
