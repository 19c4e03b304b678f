/* An OpenGL program without a window. Prints GL_NVX_gpu_memory_info's five values, in KiB, by each
 * function that reports integers, and as each library finds it.
 * Touches: libEGL.so.1 and the OpenGL library that the first argument names, by dlopen. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void *handle;

static void *need(void *found, const char *what)
{
    if (!found) {
        printf("no %s\n", what);
        exit(1);
    }
    return found;
}

int main(int count, char **arguments)
{
    void *egl = need(dlopen("libEGL.so.1", RTLD_NOW), "libEGL.so.1");
    handle (*address)(const char *) = (handle (*)(const char *))need(dlsym(egl, "eglGetProcAddress"), "eglGetProcAddress");
    handle (*display_of)(unsigned, handle, const intptr_t *) =
        (handle (*)(unsigned, handle, const intptr_t *))need(dlsym(egl, "eglGetPlatformDisplay"), "eglGetPlatformDisplay");
    unsigned (*initialize)(handle, int *, int *) = (unsigned (*)(handle, int *, int *))need(dlsym(egl, "eglInitialize"), "eglInitialize");
    unsigned (*bind)(unsigned) = (unsigned (*)(unsigned))need(dlsym(egl, "eglBindAPI"), "eglBindAPI");
    handle (*create)(handle, handle, handle, const int *) =
        (handle (*)(handle, handle, handle, const int *))need(dlsym(egl, "eglCreateContext"), "eglCreateContext");
    unsigned (*current)(handle, handle, handle, handle) =
        (unsigned (*)(handle, handle, handle, handle))need(dlsym(egl, "eglMakeCurrent"), "eglMakeCurrent");
    /* EGL_PLATFORM_SURFACELESS_MESA, EGL_OPENGL_API, and a context without a configuration. */
    handle display = need(display_of(0x31DD, NULL, NULL), "display");
    int major, minor;
    if (!initialize(display, &major, &minor) || !bind(0x30A2))
        need(NULL, "EGL");
    handle context = need(create(display, NULL, NULL, NULL), "context");
    if (!current(display, NULL, NULL, context))
        need(NULL, "current context");
    void *library = count > 1 ? need(dlopen(arguments[1], RTLD_NOW), arguments[1]) : NULL;
    void *(*find)(void *, const char *) = dlsym;
#define FIND(name) (library ? find(library, name) : address(name))
    void (*integers)(unsigned, int *) = (void (*)(unsigned, int *))need(FIND("glGetIntegerv"), "glGetIntegerv");
    void (*floats)(unsigned, float *) = (void (*)(unsigned, float *))need(FIND("glGetFloatv"), "glGetFloatv");
    void (*longs)(unsigned, int64_t *) = (void (*)(unsigned, int64_t *))FIND("glGetInteger64v");
    void (*doubles)(unsigned, double *) = (void (*)(unsigned, double *))FIND("glGetDoublev");
    unsigned (*error)(void) = (unsigned (*)(void))need(FIND("glGetError"), "glGetError");
    for (unsigned name = 0x9047; name <= 0x904B; name++) {
        int integer = -1;
        float real = -1;
        int64_t wide = -1;
        integers(name, &integer);
        floats(name, &real);
        double exact = -1;
        if (longs)
            longs(name, &wide);
        /* OpenGL ES has no such function. */
        if (doubles)
            doubles(name, &exact);
        else
            exact = wide;
        printf("%x %d %.0f %lld %.0f\n", name, integer, real, (long long)wide, exact);
    }
    /* GL_MAX_TEXTURE_SIZE, which no slice changes. */
    int other = 0;
    integers(0x0D33, &other);
    printf("other %d, error %u\n", other, error());
    return 0;
}
