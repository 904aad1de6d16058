/* A stand-in for CUDA's driver, with the three functions that the plugin `cuda` calls. The context
 * of a thread is the context of cupti_range.c for the device that double_device has set, or none.
 *
 * double_captures(1): a stream that waits for the legacy one is captured for a graph;
 * double_captures(2): the stream 0x77, which is non-blocking; 0: none. As with CUDA's driver,
 * waiting for a device during a capture fails and makes the capture invalid; double_broken returns
 * how often this happened. Asking whether a stream is captured has no effect.
 *
 * double_collective(1): waiting for device 0 takes until double_arrive() is called, as if a kernel
 * of a collective waited for the kernel of another device. double_waiting() returns whether a
 * thread waits for device 0. After a minute, the process is aborted. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

int cuCtxGetCurrent(void **context);
int cuCtxSynchronize(void);
int cuStreamIsCapturing(void *stream, int *status);
int double_device(int device);
int double_waits(void);
int double_captures(int how);
int double_broken(void);
int double_collective(int is_running);
int double_waiting(void);
int double_arrive(void);

enum { LEGACY = 1, CAPTURED = 0x77, UNSUPPORTED = 900, IMPLICIT = 906, NO_CONTEXT = 201 };

static __thread int current = -1;
static int waits, captures, broken;
static volatile int is_collective, is_waiting;

int double_device(int device) {
    current = device;
    return 0;
}

int double_captures(int how) {
    captures = how;
    return 0;
}

int double_broken(void) { return broken; }

int double_collective(int is_running) {
    is_waiting = 0;
    is_collective = is_running;
    return 0;
}

int double_waiting(void) { return is_waiting; }

int double_arrive(void) {
    is_collective = 0;
    return 0;
}

int cuCtxGetCurrent(void **context) {
    *context = current < 0 ? NULL : (void *)(size_t)(100 + current);
    return 0;
}

int cuCtxSynchronize(void) {
    const struct timespec while_waiting = {0, 1000000};
    waits++;
    if (captures) {
        broken++;
        return UNSUPPORTED;
    }
    for (int i = 0; current == 0 && is_collective; i++) {
        is_waiting = 1;
        nanosleep(&while_waiting, NULL);
        if (i > 60000) abort();
    }
    return current < 0 ? NO_CONTEXT : 0;
}

int cuStreamIsCapturing(void *stream, int *status) {
    if (captures == 1 && (size_t)stream == LEGACY) return IMPLICIT;
    *status = captures && (size_t)stream == CAPTURED;
    return 0;
}

int double_waits(void) { return waits; }
