// Calls functions of OpenCL that vector.c does not call: most of them move memory, and two start
// kernels. All commands are in one queue. Writes the resulting data to the file that its first
// argument names. A line "lacks NAME" says that the device does not support the function NAME.
//
// Expected, in bytes: a region of 8×4×2 bytes is written, one of 4×4×2 is copied, and one of 4×2×2
// is read; two buffers of 256 bytes are migrated. Images have 16×16 elements of 4 bytes: all
// elements are written, mapped and read, 8×8 are copied, 4×4 are filled, 8×4 are copied to and from
// a buffer. Of shared virtual memory, 256 bytes are filled and mapped, and 128 are copied.
#include "common.h"

static FILE *out;

static void ran(const char *name, cl_int code) {
    if (code != CL_SUCCESS)
        fprintf(out, "lacks %s\n", name);
}
#define RAN(name, ...) ran(#name, name(__VA_ARGS__))

static unsigned sum(const void *bytes, size_t length) {
    unsigned all = 0;
    for (size_t i = 0; i < length; ++i)
        all = all * 31 + ((const unsigned char *)bytes)[i];
    return all;
}

static void buffers(cl_command_queue queue) {
    unsigned char host[256], back[256] = {0};
    cl_mem pair[2] = {make_buffer(256), make_buffer(256)};
    size_t at[3] = {0, 0, 0}, there[3] = {2, 1, 0};
    size_t written[3] = {8, 4, 2}, copied[3] = {4, 4, 2}, read[3] = {4, 2, 2};
    for (int i = 0; i < 256; ++i)
        host[i] = (unsigned char)(i * 7 + 1);
    RAN(clEnqueueWriteBufferRect, queue, pair[0], CL_TRUE, at, there, written, 8, 32, 16, 64, host,
        0, NULL, NULL);
    RAN(clEnqueueCopyBufferRect, queue, pair[0], pair[1], at, there, copied, 8, 32, 16, 64, 0,
        NULL, NULL);
    RAN(clEnqueueReadBufferRect, queue, pair[1], CL_TRUE, there, at, read, 16, 64, 4, 8, back, 0,
        NULL, NULL);
    fprintf(out, "buffer %u\n", sum(back, 16));
    RAN(clEnqueueMigrateMemObjects, queue, 2, pair, CL_MIGRATE_MEM_OBJECT_HOST, 0, NULL, NULL);
    OK(clFinish(queue));
    OK(clReleaseMemObject(pair[0]));
    OK(clReleaseMemObject(pair[1]));
}

static cl_mem make_image(void) {
    cl_int code;
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc shape;
    memset(&shape, 0, sizeof shape);
    shape.image_type = CL_MEM_OBJECT_IMAGE2D;
    shape.image_width = shape.image_height = 16;
    cl_mem image = clCreateImage(context, CL_MEM_READ_WRITE, &format, &shape, NULL, &code);
    OK(code);
    return image;
}

static void images(cl_command_queue queue) {
    static unsigned char host[1024], back[1024];
    cl_int code = CL_SUCCESS;
    cl_uint color[4] = {1, 2, 3, 4};
    size_t at[3] = {0, 0, 0}, there[3] = {4, 8, 0}, whole[3] = {16, 16, 1};
    size_t copied[3] = {8, 8, 1}, filled[3] = {4, 4, 1}, moved[3] = {8, 4, 1}, row = 0;
    cl_mem pair[2] = {make_image(), make_image()}, buffer = make_buffer(256);
    for (int i = 0; i < 1024; ++i)
        host[i] = (unsigned char)(i * 3 + 5);
    RAN(clEnqueueWriteImage, queue, pair[0], CL_TRUE, at, whole, 0, 0, host, 0, NULL, NULL);
    RAN(clEnqueueCopyImage, queue, pair[0], pair[1], at, there, copied, 0, NULL, NULL);
    RAN(clEnqueueFillImage, queue, pair[0], color, at, filled, 0, NULL, NULL);
    RAN(clEnqueueCopyImageToBuffer, queue, pair[0], buffer, at, moved, 64, 0, NULL, NULL);
    RAN(clEnqueueCopyBufferToImage, queue, buffer, pair[0], 64, there, moved, 0, NULL, NULL);
    unsigned char *mapped = clEnqueueMapImage(queue, pair[0], CL_TRUE, CL_MAP_READ, at, whole, &row,
                                              NULL, 0, NULL, NULL, &code);
    OK(code);
    fprintf(out, "map %u, %zu\n", sum(mapped, 1024), row);
    RAN(clEnqueueUnmapMemObject, queue, pair[0], mapped, 0, NULL, NULL);
    RAN(clEnqueueReadImage, queue, pair[0], CL_TRUE, at, whole, 0, 0, back, 0, NULL, NULL);
    fprintf(out, "image %u\n", sum(back, 1024));
    OK(clReleaseMemObject(pair[0]));
    OK(clReleaseMemObject(pair[1]));
    OK(clReleaseMemObject(buffer));
}

static void shared(cl_command_queue queue) {
    unsigned char *memory = clSVMAlloc(context, CL_MEM_READ_WRITE, 512, 0);
    cl_uint pattern = 0x01020304;
    if (memory == NULL)
        exit(5);
    RAN(clEnqueueSVMMemFill, queue, memory, &pattern, sizeof pattern, 256, 0, NULL, NULL);
    RAN(clEnqueueSVMMemcpy, queue, CL_TRUE, memory + 256, memory, 128, 0, NULL, NULL);
    RAN(clEnqueueSVMMap, queue, CL_TRUE, CL_MAP_READ, memory, 256, 0, NULL, NULL);
    fprintf(out, "shared %u\n", sum(memory, 256));
    RAN(clEnqueueSVMUnmap, queue, memory, 0, NULL, NULL);
    OK(clFinish(queue));
    clSVMFree(context, memory);
}

static void CL_CALLBACK native(void *arguments) {
    **(int **)arguments = 42;
}

static void others(cl_command_queue queue) {
    cl_int code;
    const char *text = "__kernel void one(__global int *value) { value[0] = 11; }";
    cl_program small = clCreateProgramWithSource(context, 1, &text, NULL, &code);
    OK(code);
    OK(clBuildProgram(small, 1, &device, "", NULL, NULL));
    cl_kernel kernels[2] = {NULL, NULL};
    cl_uint count = 0;
    OK(clCreateKernelsInProgram(small, 2, kernels, &count));
    cl_mem buffer = make_buffer(64);
    OK(clSetKernelArg(kernels[0], 0, sizeof buffer, &buffer));
    RAN(clEnqueueTask, queue, kernels[0], 0, NULL, NULL);
    int result = 0, *place = &result;
    RAN(clEnqueueNativeKernel, queue, native, &place, sizeof place, 0, NULL, NULL, 0, NULL, NULL);
    OK(clFinish(queue));
    fprintf(out, "others %u, %d\n", count, result);
    OK(clReleaseKernel(kernels[0]));
    OK(clReleaseProgram(small));
    OK(clReleaseMemObject(buffer));
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    out = fopen(argv[1], "w");
    open_device();
    cl_command_queue queue = make_queue(0);
    buffers(queue);
    images(queue);
    shared(queue);
    others(queue);
    OK(clReleaseCommandQueue(queue));
    close_device();
    fclose(out);
    return 0;
}
