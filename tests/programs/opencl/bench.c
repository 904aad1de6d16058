// Measures how long OpenCL calls take, so that the times with and without Counterpoint's layer can
// be compared. If its argument is a plugin, the program acts as the plugin's host, and records
// itself. Prints lines NAME VALUE UNIT; each value is the smallest of several batches.
//
//   enqueue  a call that enqueues a kernel, while the queue waits for a user event, so nothing runs
//   through  the time per kernel from the first of these calls until all kernels have ended
//   flush    a call of clFlush when the queue is empty
#include "common.h"

#include <counterpoint/kineto_plugin.h>
#include <dlfcn.h>
#include <time.h>

enum { BATCHES = 60, LENGTH = 500 };

static KinetoPlugin_ProfilerInterface profiler;

static int take(KinetoPlugin_RegistryHandle *handle, const KinetoPlugin_ProfilerInterface *one) {
    (void)handle;
    profiler = *one;
    return 0;
}

static KinetoPlugin_ProfilerHandle *start(const char *file) {
    void *library = dlopen(file, RTLD_NOW);
    int (*enter)(const KinetoPlugin_Registry *);
    if (library == NULL)
        exit(3);
    *(void **)&enter = dlsym(library, "KinetoPlugin_register");
    KinetoPlugin_Registry registry = {KINETO_PLUGIN_REGISTRY_UNPADDED_STRUCT_SIZE, NULL, take};
    KinetoPlugin_ProfileEventType types[] = {
        KINETO_PLUGIN_PROFILE_EVENT_TYPE_CUDA_RUNTIME,
        KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL,
    };
    KinetoPlugin_ProfilerCreate_Params create = {
        KINETO_PLUGIN_PROFILER_CREATE_PARAMS_UNPADDED_STRUCT_SIZE, NULL, types, 2};
    if (enter(&registry) != 0 || profiler.profilerCreate(&create) != 0)
        exit(3);
    KinetoPlugin_ProfilerStart_Params begin = {
        KINETO_PLUGIN_PROFILER_START_PARAMS_UNPADDED_STRUCT_SIZE, create.pProfilerHandle};
    if (profiler.profilerStart(&begin) != 0)
        exit(3);
    return create.pProfilerHandle;
}

static void end(KinetoPlugin_ProfilerHandle *handle) {
    KinetoPlugin_ProfilerStop_Params stop = {
        KINETO_PLUGIN_PROFILER_STOP_PARAMS_UNPADDED_STRUCT_SIZE, handle};
    KinetoPlugin_ProfilerDestroy_Params destroy = {
        KINETO_PLUGIN_PROFILER_DESTROY_PARAMS_UNPADDED_STRUCT_SIZE, handle};
    profiler.profilerStop(&stop);
    profiler.profilerDestroy(&destroy);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void keep_least(double *least, double value) {
    if (*least == 0 || value < *least)
        *least = value;
}

int main(int argc, char **argv) {
    KinetoPlugin_ProfilerHandle *handle = argc > 1 ? start(argv[1]) : NULL;
    double enqueue = 0, through = 0, flush = 0;
    size_t one = 1;
    cl_int code, by = 1;
    open_device();
    cl_command_queue queue = make_queue(0);
    cl_kernel kernel = make_kernel("grow");
    cl_mem buffer = make_buffer(64);
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof by, &by));
    for (int batch = 0; batch < BATCHES; ++batch) {
        cl_event gate = clCreateUserEvent(context, &code), first;
        OK(code);
        OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 1, &gate, &first));
        double began = now();
        for (int i = 0; i < LENGTH; ++i)
            OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
        double enqueued = now();
        OK(clSetUserEventStatus(gate, CL_COMPLETE));
        OK(clFinish(queue));
        double ended = now();
        for (int i = 0; i < LENGTH; ++i)
            OK(clFlush(queue));
        keep_least(&flush, (now() - ended) / LENGTH);
        keep_least(&enqueue, (enqueued - began) / LENGTH);
        keep_least(&through, (ended - began) / LENGTH);
        OK(clReleaseEvent(gate));
        OK(clReleaseEvent(first));
    }
    printf("enqueue %.1f ns\nthrough %.1f ns\nflush %.1f ns\n", enqueue, through, flush);
    if (handle != NULL)
        end(handle);
    return 0;
}
