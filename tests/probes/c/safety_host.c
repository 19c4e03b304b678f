/* Opens the given plug-ins, each in the way named before it: local, deepbind, base, namespace. */
#include "probe.h"

int main(int count, char **words) {
    for (int i = 1; i + 1 < count; i += 2) {
        void *plugin = NULL;
        if (!strcmp(words[i], "local"))
            plugin = dlopen(words[i + 1], RTLD_NOW | RTLD_LOCAL);
        else if (!strcmp(words[i], "deepbind"))
            plugin = dlopen(words[i + 1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        else if (!strcmp(words[i], "base"))
            plugin = dlmopen(LM_ID_BASE, words[i + 1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        else if (!strcmp(words[i], "namespace"))
            plugin = dlmopen(LM_ID_NEWLM, words[i + 1], RTLD_NOW | RTLD_LOCAL);
        if (!plugin)
            die(dlerror());
        int (*ask)(size_t *) = dlsym(plugin, "plugin_ask");
        int (*look)(size_t *) = dlsym(plugin, "plugin_look");
        int (*properties)(void *) = dlsym(plugin, "plugin_properties");
        int (*version)(void) = dlsym(plugin, "plugin_version");
        size_t total = 1;
        int code = ask(&total);
        printf("%s %d total=%zu\n", words[i], code, total);
        total = 1;
        if (look) {
            code = look(&total);
            printf("%s look %d total=%zu\n", words[i], code, total);
        }
        if (properties) {
            unsigned char prop[2048];
            memset(prop, 0xa5, sizeof prop);
            code = properties(prop);
            size_t end = sizeof prop;
            while (end && prop[end - 1] == 0xa5)
                end--;
            memcpy(&total, prop + 288, sizeof total);
            printf("%s properties %d total=%zu end=%zu version=%d\n", words[i], code, total, end, version());
        }
    }
    return 0;
}
