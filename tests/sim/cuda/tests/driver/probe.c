/* Runs commands, one for each line of input: finds a function of the driver by name, calls it with
 * integers, and prints its result. Tests drive several of these against one simulated machine.
 *
 *   NAME ARG...            call; prints the return code. An argument is a number, @v (address of variable v),
 *                          $v (its value) or "text"
 *   show v [BYTES [AT]]    prints the number in a variable
 *   put v BYTES:VALUE...   fills a variable from its start: the fields of a struct
 *   text v [AT]            prints the string in a variable
 *   at v LINE, thread LINE, fork LINE: (not a call by itself) runs LINE there
 *   addr v NAME            the address dlsym gives, in v
 *   file v PATH            opens a file, descriptor in v
 *   exec                   becomes a fresh copy of itself
 * Touches: whatever the commands touch. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VARIABLES = 64, ROOM = 4096, ARGUMENTS = 12 };
static struct { char name[32]; _Alignas(16) unsigned char bytes[ROOM]; } variables[VARIABLES];
static char *self;

static unsigned char *variable(const char *name) {
    for (int i = 0; i < VARIABLES; i++) {
        if (!variables[i].name[0])
            strncpy(variables[i].name, name, sizeof variables[i].name - 1);
        if (!strcmp(variables[i].name, name))
            return variables[i].bytes;
    }
    abort();
}

static uint64_t number(const char *name, int bytes, int at) {
    uint64_t value = 0;
    memcpy(&value, variable(name) + at, bytes);
    return value;
}

static void *function(const char *name) {
    static void *cuda, *nvml;
    if (!cuda)
        cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!nvml)
        nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    return dlsym(name[0] == 'n' ? nvml : cuda, name);
}

static void obey(char *line);

static void *in_thread(void *line) {
    obey(line);
    return NULL;
}

static uint64_t argument(char *word) {
    if (word[0] == '@')
        return (uint64_t)variable(word + 1);
    if (word[0] == '$')
        return number(word + 1, 8, 0);
    if (word[0] == '"') {
        word[strlen(word) - 1] = 0;
        return (uint64_t)(word + 1);
    }
    return strtoull(word, NULL, 0);
}

static void call(char *name, char **words, int count) {
    typedef int (*any)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                       uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
    void *found = function(name);
    if (!found) {
        puts("missing");
        return;
    }
    any f;
    memcpy(&f, &found, sizeof f);
    uint64_t a[6] = {0}, m[8] = {0};
    for (int i = 0; i < count && i < 6; i++)
        a[i] = argument(words[i]);
    /* A struct of 64 bytes by value is passed in memory, as are the seventh and later arguments. */
    for (int i = 0; i < count; i++)
        if (words[i][0] == '*') {
            memcpy(m, variable(words[i] + 1), sizeof m);
            for (int j = i; j + 1 < 6; j++)
                a[j] = j + 1 < count ? argument(words[j + 1]) : 0;
            break;
        }
    printf("%d\n", f(a[0], a[1], a[2], a[3], a[4], a[5], m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7]));
}

static void obey(char *line) {
    char *rest = strchr(line, ' ');
    if (!strncmp(line, "thread ", 7)) {
        pthread_t thread;
        pthread_create(&thread, NULL, in_thread, rest + 1);
        pthread_join(thread, NULL);
        return;
    }
    if (!strncmp(line, "fork ", 5)) {
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            obey(rest + 1);
            fflush(stdout);
            _exit(0);
        }
        waitpid(child, NULL, 0);
        return;
    }
    char *words[ARGUMENTS], *save = NULL;
    int count = 0;
    for (char *word = strtok_r(line, " \n", &save); word && count < ARGUMENTS; word = strtok_r(NULL, " \n", &save))
        words[count++] = word;
    if (!count)
        return;
    if (!strcmp(words[0], "show")) {
        int bytes = count > 2 ? atoi(words[2]) : 8, at = count > 3 ? atoi(words[3]) : 0;
        printf("%llu\n", (unsigned long long)number(words[1], bytes, at));
    } else if (!strcmp(words[0], "text")) {
        printf("%s\n", (char *)variable(words[1]) + (count > 2 ? atoi(words[2]) : 0));
    } else if (!strcmp(words[0], "put")) {
        unsigned char *to = variable(words[1]);
        for (int i = 2; i < count; i++) {
            int bytes = atoi(words[i]);
            char *colon = strchr(words[i], ':');
            uint64_t value = argument(colon + 1);
            memcpy(to, &value, bytes);
            to += bytes;
        }
        puts("0");
    } else if (!strcmp(words[0], "addr")) {
        void *found = function(words[2]);
        memcpy(variable(words[1]), &found, sizeof found);
        printf("%d\n", found ? 0 : 1);
    } else if (!strcmp(words[0], "file")) {
        uint64_t fd = (uint64_t)open(words[2], O_RDWR);
        memcpy(variable(words[1]), &fd, sizeof fd);
        puts("0");
    } else if (!strcmp(words[0], "exec")) {
        puts("0");
        fflush(stdout);
        execl(self, self, (char *)NULL);
    } else {
        call(words[0], words + 1, count - 1);
    }
}

int main(int count, char **arguments) {
    (void)count;
    self = arguments[0];
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0);
    char line[1024];
    while (fgets(line, sizeof line, stdin))
        obey(line);
    return 0;
}
