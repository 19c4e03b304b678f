/* Opens plug-ins with RTLD_DEEPBIND. A plug-in and the program both define `version`, and the
 * plug-in has to call its own. Usage: deepbind PLUGIN...
 * With -DPLUGIN this file is a plug-in. With -DOPENS as well, the plug-in also opens a file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#ifdef PLUGIN
int version(void) { return 2; }

int ask(void)
{
#ifdef OPENS
    close(open("/dev/null", O_RDONLY));
#endif
    return version();
}
#else
int version(void) { return 1; }

int main(int count, char **words)
{
    for (int at = 1; at < count; at++) {
        void *plugin = dlopen(words[at], RTLD_NOW | RTLD_DEEPBIND);
        if (!plugin) {
            puts(dlerror());
            return 1;
        }
        int (*ask)(void) = (int (*)(void))dlsym(plugin, "ask");
        printf("its version is %d\n", ask());
    }
    return 0;
}
#endif
