/* Uses libc's functions on a file, in the program's own linker namespace (here) or in a new one
 * (apart). `absent` prints which newer functions this libc has. With -DPLUGIN this file is the
 * library that uses the functions.
 * Usage: userland here|apart PLUGIN FILE | userland absent */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef PLUGIN
static void say(const char *what, int good)
{
    printf("%s: %s\n", what, good ? "yes" : strerror(errno));
    errno = 0;
}

void use(const char *file)
{
    char text[4];
    int fd = open(file, O_RDONLY), again = dup(fd), at = openat(AT_FDCWD, file, O_RDONLY);
    say("open", fd >= 0);
    say("openat", at >= 0);
    say("dup", again >= 0);
    say("fcntl", fcntl(fd, F_GETFD) == 0);
    say("read", read(fd, text, sizeof text) == sizeof text);
    void *place = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    say("mmap", place != MAP_FAILED);
    say("munmap", munmap(place, 4096) == 0);
    say("close", close(fd) == 0 && close(again) == 0 && close(at) == 0);
    FILE *stream = fopen(file, "r");
    say("fopen", stream != NULL);
    say("fgets", stream && fgets(text, sizeof text, stream));
    say("fclose", stream && fclose(stream) == 0);
    say("sysconf", sysconf(_SC_PAGESIZE) == 4096);
    say("syscall", syscall(1000000) == -1 && errno == ENOSYS);
    fflush(stdout);
}
#else
/* These functions came with glibc 2.28, 2.28, 2.33 and 2.34. */
static const char *const NEW[] = {"fcntl64", "statx", "fstat", "close_range"};
extern int fcntl64(int, int, ...) __attribute__((weak));
extern int close_range(unsigned, unsigned, int) __attribute__((weak));

static int absent(void)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    for (size_t at = 0; at < sizeof NEW / sizeof *NEW; at++) {
        int here = dlsym(RTLD_DEFAULT, NEW[at]) != NULL, said = dlerror() != NULL;
        printf("%s: %s, %s, dlerror %d\n", NEW[at], here ? "there" : "absent",
               dlsym(libc, NEW[at]) ? "there" : "absent", said);
    }
    errno = 77;
    if (close_range && close_range(1000, 1001, 0) == -1)
        printf("close_range: errno %d\n", errno);
    if (fcntl64 && fcntl64(0, F_GETFD) == -1)
        printf("fcntl64: errno %d\n", errno);
    return 0;
}

int main(int count, char **words)
{
    if (count == 2 && strcmp(words[1], "absent") == 0) {
        return absent();
    }
    int apart = count > 3 && strcmp(words[1], "apart") == 0;
    void *plugin = apart ? dlmopen(LM_ID_NEWLM, words[2], RTLD_NOW) : dlopen(words[2], RTLD_NOW);
    if (plugin == NULL) {
        puts(dlerror());
        return 1;
    }
    void (*use)(const char *) = (void (*)(const char *))dlsym(plugin, "use");
    use(words[3]);
    return 0;
}
#endif
