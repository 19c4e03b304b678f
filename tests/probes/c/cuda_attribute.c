/* cuDeviceGetAttribute: whether the device says that it is integrated. */
#include "probe.h"

int cuDeviceGetAttribute(int *, int, int);

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    start_cuda();
    int integrated = -1, processors = -1;
    __typeof__(&cuDeviceGetAttribute) ask = REACH(CUDA, cuDeviceGetAttribute, "cuDeviceGetAttribute", 2000);
    int code = ask(&integrated, 18, 0) | ask(&processors, 16, 0);
    printf("cuDeviceGetAttribute %d integrated=%d processors=%d\n", code, integrated, processors > 0);
    return 0;
}
