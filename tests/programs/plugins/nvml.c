/* A library with NVML's interface, for tests on machines without a device of NVIDIA's. Device 0: 70.5 W,
 * 1024 MiB in use and 480 MiB reserved, 37 % and 12 % busy, 41 degrees, 1980 and 2619 MHz; each time that its sums of bytes
 * are asked for, 3 MB more were sent and nothing was received. Device 1 has no sensor of power, uses no
 * memory, and is lost after its second answer (memory and a clock).
 *
 * -DMIG: device 0 is divided. Of seven instances it has 0 and 2, which use 256 and 512 MiB and answer nothing
 * else. -DNO_DRIVER: there is no driver. -DNO_DEVICE: there is no device. -DNO_COUNT: a function that is
 * needed is missing. -DEMPTY: all are. -DOLD: an older driver, which counts reserved memory as used. */
#include <string.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15 };

#ifdef EMPTY
int nothing(void);
int nothing(void) { return 0; }
#else

typedef struct { unsigned long long total, free, used; } memory;
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory2;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct {
    unsigned id, scope;
    long long timestamp, latency;
    int kind, code;
    unsigned long long value;
} field;

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *mhz);
int nvmlDeviceGetMemoryInfo(void *device, memory *out);
int nvmlDeviceGetMemoryInfo_v2(void *device, memory2 *out);
int nvmlDeviceGetUtilizationRates(void *device, utilization *out);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *degrees);
int nvmlDeviceGetFieldValues(void *device, int count, field *fields);

static int devices[2];
static int parts[3];
static int answers;
static unsigned long long sent;

static int lost(const void *device) { return device == &devices[1] && ++answers > 2; }

int nvmlInit_v2(void) {
#ifdef NO_DRIVER
    return DRIVER_NOT_LOADED;
#else
    return SUCCESS;
#endif
}

int nvmlShutdown(void) { return SUCCESS; }

#ifndef NO_COUNT
int nvmlDeviceGetCount_v2(unsigned *count) {
#ifdef NO_DEVICE
    *count = 0;
#else
    *count = 2;
#endif
    return SUCCESS;
}
#endif

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = &devices[index];
    return SUCCESS;
}

#ifdef MIG
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count);
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **part);

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) {
    *count = device == &devices[0] ? 7 : 0;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **part) {
    if (device != &devices[0]) return NOT_SUPPORTED;
    if (index != 0 && index != 2) return NOT_FOUND;
    *part = &parts[index];
    return SUCCESS;
}
#endif

static int is_part(const void *device) { return device == &parts[0] || device == &parts[2]; }

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    if (is_part(device)) return NOT_SUPPORTED;
    if (device == &devices[1]) return NOT_SUPPORTED;
    *milliwatts = 70500;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *mhz) {
    if (is_part(device)) return NOT_SUPPORTED;
    if (lost(device)) return GPU_IS_LOST;
    *mhz = clock == 1 ? 1980 : 2619;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, memory *out) {
    if (lost(device)) return GPU_IS_LOST;
    memset(out, 0, sizeof *out);
    out->used = device == &devices[0] ? 1504ull << 20 : 0;
    return SUCCESS;
}

#ifndef OLD
int nvmlDeviceGetMemoryInfo_v2(void *device, memory2 *out) {
    if (out->version != (sizeof *out | 2u << 24)) return INVALID;
    if (lost(device)) return GPU_IS_LOST;
    out->used = device == &devices[0] ? 1024ull << 20 : 0;
    if (is_part(device)) out->used = device == &parts[0] ? 256ull << 20 : 512ull << 20;
    out->reserved = 480ull << 20;
    return SUCCESS;
}
#endif

int nvmlDeviceGetUtilizationRates(void *device, utilization *out) {
    if (is_part(device) || device == &devices[1]) return NOT_SUPPORTED;
    out->gpu = 37;
    out->memory = 12;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *degrees) {
    if (is_part(device) || device == &devices[1] || sensor != 0) return NOT_SUPPORTED;
    *degrees = 41;
    return SUCCESS;
}

int nvmlDeviceGetFieldValues(void *device, int count, field *fields) {
    if (is_part(device) || device == &devices[1]) return NOT_SUPPORTED;
    for (int i = 0; i < count; i++) {
        /* The value is a 32-bit number, as on an H100 with driver 580. */
        fields[i].kind = 1;
        fields[i].code = fields[i].id == 197 || fields[i].id == 198 ? SUCCESS : NOT_SUPPORTED;
        fields[i].value = fields[i].id == 197 ? (sent += 3000000) : 5;
    }
    return SUCCESS;
}
#endif
