/* An OpenCL driver that answers at once: what a call costs with it is what the caller and a preload
 * cost. One device, one context; a buffer that was released is given again. */
#include <stdint.h>
#include <string.h>

typedef void (*destructor)(void *, void *);
struct object { void **table; destructor gone; void *data; };

static void *table[149];
static struct object platform = {table, 0, 0}, device = {table, 0, 0}, buffer = {table, 0, 0};

static int platform_info(void *of, unsigned name, size_t room, void *value, size_t *size)
{
    (void)of, (void)name, (void)room, (void)size;
    strcpy(value, "OpenCL 3.0 stub");
    return 0;
}
static int device_ids(void *of, uint64_t kinds, unsigned room, void **devices, unsigned *count)
{
    (void)of, (void)kinds, (void)room;
    if (devices)
        *devices = &device;
    if (count)
        *count = 1;
    return 0;
}
static int device_info(void *of, unsigned name, size_t room, void *value, size_t *size)
{
    (void)of, (void)size;
    if (name == 0x106A)
        return memset(value, 0x57, 16), 0;
    return memset(value, 0, room), name == 0x101F ? *(uint64_t *)value = (uint64_t)1 << 40, 0 : 0;
}
static int context_info(void *of, unsigned name, size_t room, void *value, size_t *size)
{
    (void)of, (void)name, (void)room;
    *(void **)value = &device;
    return *size = sizeof(void *), 0;
}
static void *create_buffer(void *of, uint64_t flags, size_t size, void *host, int *code)
{
    (void)of, (void)flags, (void)size, (void)host;
    return *code = 0, &buffer;
}
static int release(void *of)
{
    struct object *object = of;
    if (object->gone)
        object->gone(object, object->data);
    object->gone = 0;
    return 0;
}
static int destructor_callback(void *of, destructor gone, void *data)
{
    struct object *object = of;
    object->gone = gone;
    return object->data = data, 0;
}
static int platforms(unsigned room, void **found, unsigned *count)
{
    table[1] = platform_info, table[2] = device_ids, table[3] = device_info, table[8] = context_info;
    table[14] = create_buffer, table[18] = release, table[83] = destructor_callback;
    if (room)
        *found = &platform;
    if (count)
        *count = 1;
    return 0;
}
void *clGetExtensionFunctionAddress(const char *name)
{
    return strcmp(name, "clIcdGetPlatformIDsKHR") ? 0 : (void *)platforms;
}
