/* Mounts a file system on a folder (first argument) by FUSE, and serves it until it is killed. It
 * has one file, model.safetensors, of 4 MiB. The second argument is the time in ms that each answer
 * to a read takes; "hang" never answers a read, and "hang-all" nothing after the mount. Prints a
 * line when it serves. A killed server leaves the mount dead: every call fails with ENOTCONN. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FOLDER = 1, MODEL = 2, SIZE = 4 << 20 };
static const char name[] = "model.safetensors";
static int device;

static void reply(const struct fuse_in_header *to, int error, const void *data, size_t length)
{
    struct fuse_out_header head = {(unsigned)(sizeof head + (error ? 0 : length)), -error, to->unique};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)data, error ? 0 : length}};
    if (writev(device, parts, 2) < 0 && errno != ENOENT)
        _exit(1);
}

static struct fuse_attr attributes(unsigned long long node)
{
    struct fuse_attr facts = {.ino = node, .nlink = 1, .blksize = 4096};
    facts.mode = node == FOLDER ? S_IFDIR | 0755 : S_IFREG | 0644;
    facts.size = node == MODEL ? SIZE : 0;
    facts.blocks = facts.size / 512;
    return facts;
}

static void serve(const struct fuse_in_header *in, const void *body, const char *how)
{
    static char zeros[1 << 20];
    if (!strcmp(how, "hang-all") && in->opcode != FUSE_INIT)
        return;
    switch (in->opcode) {
    case FUSE_INIT: {
        struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_readahead = 65536, .max_write = 65536};
        return reply(in, 0, &out, sizeof out);
    }
    case FUSE_LOOKUP: {
        struct fuse_entry_out out = {.nodeid = MODEL, .attr = attributes(MODEL)};
        return reply(in, strcmp(body, name) ? ENOENT : 0, &out, sizeof out);
    }
    case FUSE_GETATTR: {
        struct fuse_attr_out out = {.attr = attributes(in->nodeid)};
        return reply(in, 0, &out, sizeof out);
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
        struct fuse_open_out out = {.fh = in->nodeid};
        return reply(in, 0, &out, sizeof out);
    }
    case FUSE_READ: {
        const struct fuse_read_in *read = body;
        if (!strcmp(how, "hang"))
            return;
        usleep((unsigned)atoi(how) * 1000);
        unsigned long long left = read->offset < SIZE ? SIZE - read->offset : 0;
        return reply(in, 0, zeros, left < read->size ? left : read->size);
    }
    case FUSE_READDIR:
        return reply(in, 0, NULL, 0);
    case FUSE_STATFS: {
        struct fuse_statfs_out out = {.st = {.blocks = 1024, .bsize = 4096, .namelen = 255}};
        return reply(in, 0, &out, sizeof out);
    }
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return;
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_FLUSH:
    case FUSE_ACCESS:
        return reply(in, 0, NULL, 0);
    default:
        return reply(in, ENOSYS, NULL, 0);
    }
}

int main(int count, char **words)
{
    static char request[1 << 20];
    char options[128];
    if (count != 3)
        return 2;
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    sprintf(options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    if (device < 0 || mount("gpuslice-test", words[1], "fuse", MS_NOSUID | MS_NODEV, options))
        return perror("mount"), 1;
    int is_ready = 0;
    for (;;) {
        ssize_t length = read(device, request, sizeof request);
        if (length < 0 && (errno == EINTR || errno == ENOENT))
            continue;
        if (length < (ssize_t)sizeof(struct fuse_in_header))
            return 0;
        const struct fuse_in_header *in = (const void *)request;
        serve(in, in + 1, words[2]);
        if (!is_ready && in->opcode == FUSE_INIT) {
            is_ready = 1;
            puts("serving");
            fflush(stdout);
        }
    }
}
