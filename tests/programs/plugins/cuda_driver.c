/* A library with the two functions of CUDA's driver that the plugin `cuda` calls. The context of a thread is that of
 * cupti_range.c for the device that double_device has set, or none. */
#include <stddef.h>

int cuCtxGetCurrent(void **context);
int cuCtxSynchronize(void);
int double_device(int device);
int double_waits(void);

static __thread int current = -1;
static int waits;

int double_device(int device) {
    current = device;
    return 0;
}

int cuCtxGetCurrent(void **context) {
    *context = current < 0 ? NULL : (void *)(size_t)(100 + current);
    return 0;
}

int cuCtxSynchronize(void) {
    waits++;
    return current < 0 ? 201 : 0;
}

int double_waits(void) { return waits; }
