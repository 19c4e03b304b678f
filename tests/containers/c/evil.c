/* What an image has that attacks whoever loads its code: leaves a mark wherever it is loaded. */
#include <fcntl.h>
#include <unistd.h>

__attribute__((constructor)) static void ran(void) {
    /* In whatever root it runs: the host's is what a test looks at. */
    int mark = open("/run/evil-ran", O_CREAT | O_WRONLY, 0666);
    if (mark >= 0) {
        (void)!write(mark, "ran\n", 4);
        close(mark);
    }
}
