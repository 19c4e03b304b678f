/* The smallest program of an image: prints a greeting, and waits if its argument says so. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    /* As a hook it reads the container's state, because crun fails a container whose hook does
     * not. */
    char state[4096];
    if (argc > 1 && strcmp(argv[1], "createRuntime") == 0)
        while (read(0, state, sizeof state) > 0)
            ;
    puts("hello from the image");
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "wait") == 0)
        pause();
    return 0;
}
