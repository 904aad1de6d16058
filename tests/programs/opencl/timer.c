// An OpenCL layer between Counterpoint's layer and the implementation. It adds the function
// clGetDeviceAndHostTimer, which PoCL lacks. PoCL's events have times of CLOCK_MONOTONIC_RAW, so
// the function returns the time of that clock. SHIFT is added to the device's time, so that a test
// can see whether the function was used. This file was written from the loader's headers alone.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>
#include <string.h>
#include <time.h>

#ifndef SHIFT
#define SHIFT 0
#endif

static struct _cl_icd_dispatch table;

static cl_int CL_API_CALL timer(cl_device_id device, cl_ulong *of_device, cl_ulong *of_host) {
    struct timespec time;
    (void)device;
    clock_gettime(CLOCK_MONOTONIC_RAW, &time);
    *of_device = *of_host = time.tv_sec * 1000000000ull + time.tv_nsec;
    *of_device += SHIFT;
    return CL_SUCCESS;
}

cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t size, void *value, size_t *size_ret) {
    cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    if (name != CL_LAYER_API_VERSION || (value != NULL && size < sizeof version))
        return CL_INVALID_VALUE;
    if (value != NULL)
        memcpy(value, &version, sizeof version);
    if (size_ret != NULL)
        *size_ret = sizeof version;
    return CL_SUCCESS;
}

cl_int CL_API_CALL clInitLayer(cl_uint entries, const struct _cl_icd_dispatch *target,
                               cl_uint *entries_ret, const struct _cl_icd_dispatch **table_ret) {
    size_t most = sizeof table / sizeof(void *);
    memcpy(&table, target, (entries < most ? entries : most) * sizeof(void *));
    table.clGetDeviceAndHostTimer = timer;
    *entries_ret = entries < most ? entries : most;
    *table_ret = &table;
    return CL_SUCCESS;
}
