/* A program linked to a function that drivers before R550 lack. That is cuGreenCtxCreate, which the
 * preload library exports too. With -DOTHER it is cuGreenCtxRecordEvent, which the library does not
 * export. Prints the code of a call before cuInit. */
#include <stddef.h>
#include <stdio.h>

#ifdef OTHER
int cuGreenCtxRecordEvent(void *context, void *event);
#else
int cuGreenCtxCreate(void **context, void *description, int device, unsigned flags);
#endif

int main(void) {
#ifdef OTHER
    printf("%d\n", cuGreenCtxRecordEvent(NULL, NULL));
#else
    void *context = NULL;
    printf("%d\n", cuGreenCtxCreate(&context, NULL, 0, 1));
#endif
    return 0;
}
