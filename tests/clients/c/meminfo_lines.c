/* Prints the first three lines of /proc/meminfo, read at once by a system call. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int main(void) {
    char text[4096];
    int file = open("/proc/meminfo", O_RDONLY);
    ssize_t length = read(file, text, sizeof text);
    ssize_t end = 0;
    for (int lines = 0; end < length && lines < 3; end++) lines += text[end] == '\n';
    return length > 0 && write(1, text, (size_t)end) == end ? 0 : 1;
}
