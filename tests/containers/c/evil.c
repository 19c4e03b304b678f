/* An image's library that attacks every process that loads it: it leaves a mark in /run. */
#include <fcntl.h>
#include <unistd.h>

__attribute__((constructor)) static void ran(void) {
    /* The mark is in the root of the loading process. Tests look for it on the host. */
    int mark = open("/run/evil-ran", O_CREAT | O_WRONLY, 0666);
    if (mark >= 0) {
        (void)!write(mark, "ran\n", 4);
        close(mark);
    }
}
