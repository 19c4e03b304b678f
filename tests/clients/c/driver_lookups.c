/* Prints every answer of cuGetProcAddress and of dlsym, for each name on standard input.
 * Usage: driver_lookups LIBCUDA <names. LIBCUDA is the name that dlopen opens.
 *
 * Each line is NAME FLAGS FUNCTION VERSION:RC/STATUS/SYMBOL ... Consecutive versions with the same
 * answer share one entry, and flags with the same answers share one line.
 * FUNCTION: 2 is cuGetProcAddress_v2, n is cuGetProcAddress_v2 without a status, 1 is
 * cuGetProcAddress.
 * SYMBOL: the exported name at the address, with "own:" before it if the preload library exports
 * it; "-" for NULL; "unwritten" if the call did not write the caller's pointer; "hidden" for an
 * address that no library exports.
 * The line NAME dlsym SYMBOL follows. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const int versions[] = {0,     1,     1999,  2000,  2020,  2030,  3000,  3010,  3020,  3999,  4000,  4010,
                               4020,  5000,  5050,  6000,  6050,  7000,  7050,  8000,  9000,  9020,  10000, 10010,
                               10020, 11000, 11010, 11020, 11030, 11040, 11050, 11060, 11070, 11080, 12000, 12010,
                               12020, 12030, 12040, 12050, 12060, 12080, 12090, 13000, 13010, 13020, 99999, -1};
enum { FLAGS = 4, ROOM = 8192 };
static char untouched;

typedef int (*get_v2)(const char *, void **, int, unsigned long long, int *);
typedef int (*get_v1)(const char *, void **, int, unsigned long long);

/* Names an entry of the preload library. The library has entries for each copy of the driver, so
 * they are not its exported symbols. The name of an entry is the one for which dlsym returns its
 * address. */
static const char *own(void *library, const char *name, void *address) {
    static const char *const ends[] = {"",         "_v2",      "_v3",           "_v4",      "_ptsz",    "_ptds",
                                       "_v2_ptsz", "_v2_ptds", "_v3_ptsz", "WithFlags", "WithParams", "WithParams_ptsz"};
    static char text[160];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(text, sizeof text, "own:%s%s", name, ends[i]);
        if (dlsym(library, text + 4) == address)
            return text;
    }
    return "own:?";
}

static void symbol(void *library, const char *name, void *address, char *text, size_t room) {
    Dl_info info;
    if (address == NULL)
        snprintf(text, room, "-");
    else if (address == &untouched)
        snprintf(text, room, "unwritten");
    else if (!dladdr(address, &info))
        snprintf(text, room, "hidden");
    else if (strstr(info.dli_fname, "libgpuslice.so"))
        snprintf(text, room, "%s", own(library, name, address));
    else
        snprintf(text, room, "%s", info.dli_sname != NULL && info.dli_saddr == address ? info.dli_sname : "hidden");
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
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    if (v2 == NULL || v1 == NULL || init == NULL)
        return 1;
    init(0); /* This fails without a kernel driver. Look-ups work nevertheless. */

    char name[128], text[200];
    static char lines[FLAGS][ROOM];
    while (fgets(name, sizeof name, stdin) != NULL) {
        name[strcspn(name, "\n")] = 0;
        const char *shown = *name ? name : "\"\"";
        for (const char *way = "2n1"; *way != 0; way++) {
            for (unsigned long long flags = 0; flags < FLAGS; flags++) {
                char last[256] = "", answer[256];
                size_t length = 0;
                for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
                    void *found = &untouched;
                    int status = -1, rc;
                    if (*way == '1')
                        rc = v1(name, &found, versions[i], flags);
                    else
                        rc = v2(name, &found, versions[i], flags, *way == '2' ? &status : NULL);
                    symbol(library, name, found, text, sizeof text);
                    snprintf(answer, sizeof answer, "%d/%d/%s", rc, status, text);
                    if (strcmp(answer, last) != 0 && length < ROOM - 300)
                        length += snprintf(lines[flags] + length, ROOM - length, " %d:%s", versions[i], answer);
                    strcpy(last, answer);
                }
            }
            for (int flags = 0; flags < FLAGS; flags++) {
                int first = 0;
                while (strcmp(lines[first], lines[flags]) != 0)
                    first++;
                if (first != flags)
                    continue;
                printf("%s ", shown);
                for (int other = flags; other < FLAGS; other++)
                    if (strcmp(lines[other], lines[flags]) == 0)
                        printf("%d", other);
                printf(" %c%s\n", *way, lines[flags]);
            }
        }
        symbol(library, name, dlsym(library, name), text, sizeof text);
        printf("%s dlsym %s\n", shown, text);
    }
    return 0;
}
