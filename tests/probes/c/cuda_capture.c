/* Captured streams, and the runtime's route to memory. Each call answers as the driver does. */
#include "probe.h"

int cuStreamCreate(void **, unsigned);
int cuStreamBeginCapture(void *);
int cuStreamBeginCapture_ptsz(void *);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamBeginCapture_v2_ptsz(void *, int);
int cuStreamBeginCaptureToGraph(void *, void *, const void *, const void *, size_t, int);
int cuStreamBeginCaptureToGraph_ptsz(void *, void *, const void *, const void *, size_t, int);
int cuStreamEndCapture(void *, void **);
int cuStreamEndCapture_ptsz(void *, void **);
int cudaMalloc(void **, size_t);

#define NAMED(name, base, version) REACH(CUDA, name, base, version)
#define TWIN(name, base, version) REACH_PER_THREAD(CUDA, name, base, version)
#define BEGIN "cuStreamBeginCapture"
#define GRAPH "cuStreamBeginCaptureToGraph"
#define END "cuStreamEndCapture"

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    start_cuda();
    void *stream = NULL, *graph = NULL, *at = NULL;
    if (cuStreamCreate(&stream, 0))
        die("stream");
    printf("cuStreamBeginCapture %d\n", NAMED(cuStreamBeginCapture, BEGIN, 10000)(stream));
    printf("cuStreamEndCapture %d\n", NAMED(cuStreamEndCapture, END, 10000)(stream, &graph));
    printf("cuStreamBeginCapture_ptsz %d\n", TWIN(cuStreamBeginCapture_ptsz, BEGIN, 10000)(stream));
    printf("cuStreamEndCapture_ptsz %d\n", TWIN(cuStreamEndCapture_ptsz, END, 10000)(stream, &graph));
    printf("cuStreamBeginCapture_v2 %d\n", NAMED(cuStreamBeginCapture_v2, BEGIN, 10010)(stream, 2));
    cuStreamEndCapture(stream, &graph);
    printf("cuStreamBeginCapture_v2_ptsz %d\n", TWIN(cuStreamBeginCapture_v2_ptsz, BEGIN, 10010)(stream, 2));
    cuStreamEndCapture(stream, &graph);
    printf("cuStreamBeginCaptureToGraph %d\n",
           NAMED(cuStreamBeginCaptureToGraph, GRAPH, 12030)(stream, graph, NULL, NULL, 0, 2));
    printf("cuStreamBeginCaptureToGraph_ptsz %d\n",
           TWIN(cuStreamBeginCaptureToGraph_ptsz, GRAPH, 12030)(stream, graph, NULL, NULL, 0, 2));
    long long before = free_now();
    int code = REACH(CUDART, cudaMalloc, NULL, 0)(&at, (size_t)16 << 20);
    printf("cudaMalloc %d took=%lld\n", code, (before - free_now()) >> 20);
    return 0;
}
