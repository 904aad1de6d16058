// The code that the OpenCL programs for tests share: it finds a device, checks calls for errors,
// and opens the output file.
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The name of the kernel that adds two vectors. Tests can choose another name.
#ifndef KERNEL
#define KERNEL add
#endif
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

#define OK(call)                                                                          \
    do {                                                                                  \
        cl_int code_ = (call);                                                            \
        if (code_ != CL_SUCCESS) {                                                        \
            fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, code_);         \
            exit(2);                                                                      \
        }                                                                                 \
    } while (0)

static cl_device_id device;
static cl_context context;
static cl_program program;

static const char *const source =
    "__kernel void " TEXT(KERNEL) "(__global const int *a, __global const int *b,\n"
    "                               __global int *sum) {\n"
    "    size_t i = get_global_id(0);\n"
    "    sum[i] = a[i] + b[i];\n"
    "}\n"
    "__kernel void grow(__global int *values, int by) {\n"
    "    values[get_global_id(0) + get_global_size(0) * get_global_id(1)] += by;\n"
    "}\n";

static void open_device(void) {
    cl_platform_id platform;
    cl_int code;
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    OK(code);
    program = clCreateProgramWithSource(context, 1, (const char **)&source, NULL, &code);
    OK(code);
    OK(clBuildProgram(program, 1, &device, "", NULL, NULL));
}

__attribute__((unused)) static void close_device(void) {
    OK(clReleaseProgram(program));
    OK(clReleaseContext(context));
}

__attribute__((unused)) static cl_command_queue make_queue(cl_queue_properties bits) {
    cl_int code;
    cl_queue_properties list[] = {CL_QUEUE_PROPERTIES, bits, 0};
    cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, list, &code);
    OK(code);
    return queue;
}

__attribute__((unused)) static cl_kernel make_kernel(const char *name) {
    cl_int code;
    cl_kernel kernel = clCreateKernel(program, name, &code);
    OK(code);
    return kernel;
}

__attribute__((unused)) static cl_mem make_buffer(size_t bytes) {
    cl_int code;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    OK(code);
    return buffer;
}
