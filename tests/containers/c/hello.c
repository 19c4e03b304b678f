/* The smallest program of an image: says hello, and waits when it is asked to. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    puts("hello from the image");
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "wait") == 0)
        pause();
    return 0;
}
