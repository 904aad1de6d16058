// Writes values by which a program could notice a layer to the file that its first argument names:
// properties of queues, reference counts, whether commands have times, and errors.
#include "common.h"

#include <unistd.h>

static FILE *out;

// Waits until the implementation's own threads have released their references. This is assumed when
// the count has not changed for 40 ms.
static cl_uint settled(cl_event event) {
    cl_uint last = 0, references = 0;
    for (int same = 0; same < 5; ++same) {
        usleep(10000);
        OK(clGetEventInfo(event, CL_EVENT_REFERENCE_COUNT, sizeof references, &references, NULL));
        if (references != last)
            same = 0;
        last = references;
    }
    return references;
}

static void properties(const char *what, cl_command_queue queue) {
    cl_queue_properties bits = 0, list[16];
    size_t size = 77;
    cl_int code = clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof bits, &bits, &size);
    fprintf(out, "%s: %d, %llu in %zu bytes", what, code, (unsigned long long)bits, size);
    size = 77;
    code = clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES_ARRAY, 0, NULL, &size);
    fprintf(out, "; list %d, %zu bytes", code, size);
    memset(list, 0xff, sizeof list);
    code = clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES_ARRAY, sizeof list, list, NULL);
    fprintf(out, "; %d:", code);
    for (size_t i = 0; i < size / sizeof *list && i < 16; ++i)
        fprintf(out, " %llx", (unsigned long long)list[i]);
    if (size > 0) {
        code = clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES_ARRAY, size - 1, list, NULL);
        fprintf(out, "; too small: %d", code);
    }
    code = clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, 1, &bits, NULL);
    fprintf(out, "; too small: %d\n", code);
}

static void times(const char *what, cl_command_queue queue, cl_kernel kernel) {
    cl_event event = NULL;
    size_t global = 16, size = 0;
    cl_ulong time = 0;
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, &event));
    OK(clRetainEvent(event));
    OK(clFinish(queue));
    cl_int code =
        clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof time, &time, &size);
    fprintf(out, "%s: %d, %d, %zu bytes", what, code, time != 0, size);
    code = clGetEventProfilingInfo(event, 0x4711, sizeof time, &time, NULL);
    fprintf(out, "; no such time: %d", code);
    cl_uint two = settled(event);
    OK(clReleaseEvent(event));
    fprintf(out, "; references %u, then %u\n", two, settled(event));
    OK(clReleaseEvent(event));
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    cl_int code;
    out = fopen(argv[1], "w");
    open_device();
    cl_command_queue plain = clCreateCommandQueue(context, device, 0, &code);
    OK(code);
    cl_command_queue timed =
        clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &code);
    OK(code);
    cl_command_queue none = clCreateCommandQueueWithProperties(context, device, NULL, &code);
    OK(code);
    cl_queue_properties empty[] = {0};
    cl_command_queue nothing = clCreateCommandQueueWithProperties(context, device, empty, &code);
    OK(code);
    cl_command_queue overtaking = make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    cl_command_queue both =
        make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE);
    properties("plain", plain);
    properties("timed", timed);
    properties("none", none);
    properties("nothing", nothing);
    properties("overtaking", overtaking);
    properties("both", both);

    cl_mem buffer = make_buffer(4096);
    cl_int by = 1;
    cl_kernel kernel = make_kernel("grow");
    size_t global = 16, zero = 0;
    cl_event event = (cl_event)(size_t)0x1234;
    // The next calls fail. For each of them, the program writes what the call returned, and the
    // variables that it would set.
    code = clEnqueueNDRangeKernel(plain, kernel, 1, NULL, &global, NULL, 0, NULL, &event);
    fprintf(out, "kernel without arguments: %d, %p\n", code, (void *)event);
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof by, &by));
    code = clEnqueueNDRangeKernel(NULL, kernel, 1, NULL, &global, NULL, 0, NULL, &event);
    fprintf(out, "no queue: %d, %p\n", code, (void *)event);
    code = clEnqueueNDRangeKernel(plain, kernel, 77, NULL, &global, &zero, 0, NULL, &event);
    fprintf(out, "77 dimensions: %d, %p\n", code, (void *)event);
    code = clEnqueueReadBuffer(plain, buffer, CL_TRUE, 4000, 4096, &by, 0, NULL, &event);
    fprintf(out, "beyond the buffer: %d, %p\n", code, (void *)event);
    void *address = clEnqueueMapBuffer(plain, buffer, CL_TRUE, CL_MAP_READ, 9999, 1, 0, NULL,
                                       &event, &code);
    fprintf(out, "map beyond: %p, %d, %p\n", address, code, (void *)event);
    address = clEnqueueMapBuffer(plain, buffer, CL_TRUE, CL_MAP_READ, 9999, 1, 0, NULL, NULL, NULL);
    fprintf(out, "map beyond, no code: %p\n", address);
    fprintf(out, "no events: %d\n", clWaitForEvents(0, NULL));
    fprintf(out, "flush nothing: %d\n", clFlush(NULL));
    fprintf(out, "finish nothing: %d\n", clFinish(NULL));
    code = 99;
    cl_command_queue bad = clCreateCommandQueue(context, device, 1 << 20, &code);
    fprintf(out, "queue of unknown kind: %p, %d\n", (void *)bad, code);
    bad = clCreateCommandQueue(NULL, device, 0, &code);
    fprintf(out, "queue of nothing: %p, %d\n", (void *)bad, code);
    cl_queue_properties odd[] = {0x4711, 1, 0};
    bad = clCreateCommandQueueWithProperties(context, device, odd, &code);
    fprintf(out, "queue with odd properties: %p, %d\n", (void *)bad, code);
    cl_kernel absent = clCreateKernel(program, "absent", &code);
    fprintf(out, "no such kernel: %p, %d\n", (void *)absent, code);

    times("plain", plain, kernel);
    times("timed", timed, kernel);
    times("overtaking", overtaking, kernel);
    times("both", both, kernel);
    // The next command cannot begin before the user event `gate` is set.
    cl_event gate = clCreateUserEvent(context, &code);
    OK(code);
    OK(clEnqueueNDRangeKernel(plain, kernel, 1, NULL, &global, NULL, 1, &gate, &event));
    fprintf(out, "references while it waits: %u\n", settled(event));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clWaitForEvents(1, &event));
    OK(clReleaseEvent(event));
    OK(clReleaseEvent(gate));
    cl_uint references = 0;
    OK(clFinish(plain));
    usleep(100000);
    OK(clGetCommandQueueInfo(plain, CL_QUEUE_REFERENCE_COUNT, sizeof references, &references,
                             NULL));
    fprintf(out, "references of the queue: %u\n", references);
    cl_command_queue all[] = {plain, timed, none, nothing, overtaking, both};
    for (int i = 0; i < 6; ++i)
        OK(clReleaseCommandQueue(all[i]));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    usleep(100000);
    OK(clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof references, &references,
                        NULL));
    fprintf(out, "references of the context: %u\n", references);
    close_device();
    fclose(out);
    return 0;
}
