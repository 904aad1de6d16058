// Adds two vectors, and uses the most common kinds of commands. Writes the sum to the file that its
// first argument names. If the second argument is "times", the program asks for the times of
// commands, and writes how many nanoseconds each command took according to its event, in the order
// of the calls.
//
// The commands, counted by hand: 2 writes, 3 kernels that add, 1 kernel `grow` in two dimensions, 1
// copy, 1 fill, 1 map, 1 unmap, 1 read.
#include "common.h"

enum { N = 4096 };

static FILE *out;
static int with_times;

static void finish(const char *what, cl_event event) {
    cl_ulong start, end;
    if (!with_times)
        return;
    OK(clWaitForEvents(1, &event));
    OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL));
    OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL));
    OK(clReleaseEvent(event));
    fprintf(out, "%s %llu\n", what, (unsigned long long)(end - start));
}

int main(int argc, char **argv) {
    static cl_int a[N], b[N], sum[N];
    cl_int code, seven = 7, three = 3;
    size_t bytes = sizeof a;
    with_times = argc > 2 && strcmp(argv[2], "times") == 0;
    out = fopen(argv[1], "w");
    open_device();
    cl_command_queue queue = make_queue(with_times ? CL_QUEUE_PROFILING_ENABLE : 0);
    cl_kernel add = make_kernel(TEXT(KERNEL)), grow = make_kernel("grow");
    cl_mem buffers[3];
    for (int i = 0; i < 3; ++i)
        buffers[i] = make_buffer(bytes);
    for (int i = 0; i < N; ++i) {
        a[i] = i;
        b[i] = 1000000 - 3 * i;
    }
    cl_event event = NULL, *wanted = with_times ? &event : NULL;
    OK(clEnqueueWriteBuffer(queue, buffers[0], CL_FALSE, 0, bytes, a, 0, NULL, wanted));
    finish("write", event);
    OK(clEnqueueWriteBuffer(queue, buffers[1], CL_TRUE, 0, bytes, b, 0, NULL, wanted));
    finish("write", event);
    for (int i = 0; i < 3; ++i)
        OK(clSetKernelArg(add, i, sizeof(cl_mem), &buffers[i]));
    size_t global = N, local = 64;
    for (int i = 0; i < 3; ++i) {
        const size_t *group = i == 0 ? &local : NULL;
        OK(clEnqueueNDRangeKernel(queue, add, 1, NULL, &global, group, 0, NULL, wanted));
        finish("add", event);
    }
    OK(clSetKernelArg(grow, 0, sizeof(cl_mem), &buffers[2]));
    OK(clSetKernelArg(grow, 1, sizeof seven, &seven));
    size_t plane[2] = {64, 32}, origin[2] = {0, 0};
    OK(clEnqueueNDRangeKernel(queue, grow, 2, origin, plane, NULL, 0, NULL, wanted));
    finish("grow", event);
    OK(clEnqueueCopyBuffer(queue, buffers[2], buffers[0], 0, 0, 1024, 0, NULL, wanted));
    finish("copy", event);
    OK(clEnqueueFillBuffer(queue, buffers[1], &three, sizeof three, 0, 2048, 0, NULL, wanted));
    finish("fill", event);
    cl_int *mapped = clEnqueueMapBuffer(queue, buffers[0], CL_TRUE, CL_MAP_READ, 0, 512, 0, NULL,
                                        wanted, &code);
    OK(code);
    finish("map", event);
    fprintf(out, "mapped %d\n", mapped[100]);
    OK(clEnqueueUnmapMemObject(queue, buffers[0], mapped, 0, NULL, wanted));
    finish("unmap", event);
    OK(clEnqueueReadBuffer(queue, buffers[2], CL_TRUE, 0, bytes, sum, 0, NULL, wanted));
    finish("read", event);
    OK(clFinish(queue));
    for (int i = 0; i < N; i += 512)
        fprintf(out, "sum[%d] = %d\n", i, sum[i]);
    for (int i = 0; i < 3; ++i)
        OK(clReleaseMemObject(buffers[i]));
    OK(clReleaseKernel(add));
    OK(clReleaseKernel(grow));
    OK(clReleaseCommandQueue(queue));
    close_device();
    fclose(out);
    return 0;
}
