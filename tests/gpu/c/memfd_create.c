/* memfd_create for C libraries before glibc 2.27, which lack it. It is linked into the kit's
 * gpuslice. */
#include <sys/syscall.h>
#include <unistd.h>

int memfd_create(const char *name, unsigned flags)
{
    return (int)syscall(SYS_memfd_create, name, flags);
}
