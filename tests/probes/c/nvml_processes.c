/* The processes on the device: every list in every layout. A neighbour's process id never
 * appears, neither in the list nor behind it. */
#include "probe.h"
#include <unistd.h>

typedef struct {
    unsigned pid;
    unsigned long long used;
} info_v1;
typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu, compute;
} info;
typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu, compute;
    unsigned long long protected;
} detail;
typedef struct {
    unsigned version, mode, count;
    detail *list;
} detail_list;

int nvmlDeviceGetComputeRunningProcesses(void *, unsigned *, info_v1 *);
int nvmlDeviceGetComputeRunningProcesses_v2(void *, unsigned *, info *);
int nvmlDeviceGetComputeRunningProcesses_v3(void *, unsigned *, info *);
int nvmlDeviceGetGraphicsRunningProcesses(void *, unsigned *, info_v1 *);
int nvmlDeviceGetGraphicsRunningProcesses_v2(void *, unsigned *, info *);
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *, unsigned *, info *);
int nvmlDeviceGetMPSComputeRunningProcesses(void *, unsigned *, info_v1 *);
int nvmlDeviceGetMPSComputeRunningProcesses_v2(void *, unsigned *, info *);
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *, unsigned *, info *);
int nvmlDeviceGetRunningProcessDetailList(void *, detail_list *);

#define NAMED(name) REACH(NVML, name, NULL, 0)

/* Prints the entries that were written, and any entry behind them. */
#define SHOW(name, list)                                                                       \
    do {                                                                                       \
        unsigned room = 8;                                                                     \
        memset(list, 0, sizeof list);                                                          \
        int code = NAMED(name)(device, &room, list);                                           \
        printf("%s %d count=%u", #name, code, room);                                           \
        for (unsigned i = 0; i < 8; i++)                                                       \
            if (list[i].pid)                                                                   \
                printf(" %s=%llu", list[i].pid == (unsigned)getpid() ? "us" : "other", list[i].used >> 20); \
        printf("\n");                                                                          \
    } while (0)

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    start_cuda();
    void *device = start_nvml();
    info_v1 old[8];
    info new[8];
    detail all[8];
    SHOW(nvmlDeviceGetComputeRunningProcesses, old);
    SHOW(nvmlDeviceGetComputeRunningProcesses_v2, new);
    SHOW(nvmlDeviceGetComputeRunningProcesses_v3, new);
    SHOW(nvmlDeviceGetGraphicsRunningProcesses, old);
    SHOW(nvmlDeviceGetGraphicsRunningProcesses_v2, new);
    SHOW(nvmlDeviceGetGraphicsRunningProcesses_v3, new);
    SHOW(nvmlDeviceGetMPSComputeRunningProcesses, old);
    SHOW(nvmlDeviceGetMPSComputeRunningProcesses_v2, new);
    SHOW(nvmlDeviceGetMPSComputeRunningProcesses_v3, new);
    detail_list list = {0x1000018, 0, 8, all};
    memset(all, 0, sizeof all);
    int code = NAMED(nvmlDeviceGetRunningProcessDetailList)(device, &list);
    printf("nvmlDeviceGetRunningProcessDetailList %d count=%u", code, list.count);
    for (unsigned i = 0; i < 8; i++)
        if (all[i].pid)
            printf(" %s=%llu", all[i].pid == (unsigned)getpid() ? "us" : "other", all[i].used >> 20);
    unsigned room = 0;
    code = NAMED(nvmlDeviceGetComputeRunningProcesses_v3)(device, &room, NULL);
    printf("\nroom for none %d count=%u", code, room);
    room = 8;
    code = NAMED(nvmlDeviceGetComputeRunningProcesses_v3)(device, &room, NULL);
    printf(" nowhere %d nothing %d", code, NAMED(nvmlDeviceGetComputeRunningProcesses_v3)(device, NULL, new));
    list.version = 1;
    printf(" version %d\n", NAMED(nvmlDeviceGetRunningProcessDetailList)(device, &list));
    return 0;
}
