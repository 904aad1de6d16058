/* cupti.c with the part of CUPTI's interface that samples counters (CUDA 12.6 and later). Each
 * struct that the caller passes must have the size and the places of fields of CUDA 13. The code
 * here reads and writes the fields as 64-bit words. `double_run` has two more scenarios:
 *
 *   counters  makes contexts on the devices 0 and 1, and the records of `normal`
 *   silent    the same contexts, and a launch whose kernel CUPTI does not give
 *
 * A device has six samples, three for each fetch: sample k of device d has 1000 d + 10 k + c for counter c, and
 * lasts from 100 k to 100 k + 100 us after the begin. The counters have the names below; every second value of
 * `ratio__without.pct` is none. After the end comes a sample of no length.
 *
 * -DCUDA12: the host's struct has no last field. -DNO_TIMER: samples only by cycles. -DOVERFLOW:
 * each fetch after the first finds the device's buffer full. -DFORBIDDEN: only root may read
 * counters. -DMIG: the device is an instance of a GPU that MIG divides. */
#define WITH_COUNTERS
#include "cupti.c"

#include <math.h>

enum { OUT_OF_MEMORY = 8, INVALID_NAME = 17, FORBIDDEN_CODE = 35, MIG_CODE = 43, MAGIC = 0x5a17 };

#define WORDS(name) int name(uint64_t *p)
WORDS(cuptiProfilerInitialize);
WORDS(cuptiDeviceGetChipName);
WORDS(cuptiPmSamplingGetCounterAvailability);
WORDS(cuptiProfilerHostInitialize);
WORDS(cuptiProfilerHostDeinitialize);
WORDS(cuptiProfilerHostConfigAddMetrics);
WORDS(cuptiProfilerHostGetConfigImageSize);
WORDS(cuptiProfilerHostGetConfigImage);
WORDS(cuptiProfilerHostGetNumOfPasses);
WORDS(cuptiProfilerHostEvaluateToGpuValues);
WORDS(cuptiPmSamplingEnable);
WORDS(cuptiPmSamplingDisable);
WORDS(cuptiPmSamplingSetConfig);
WORDS(cuptiPmSamplingGetCounterDataSize);
WORDS(cuptiPmSamplingCounterDataImageInitialize);
WORDS(cuptiPmSamplingStart);
WORDS(cuptiPmSamplingStop);
WORDS(cuptiPmSamplingDecodeData);
WORDS(cuptiPmSamplingGetCounterDataInfo);
WORDS(cuptiPmSamplingCounterDataGetSampleInfo);
int cuptiEnableCallback(uint32_t enable, void *subscriber, uint32_t domain, uint32_t id);
int cuptiGetDeviceId(void *context, uint32_t *device);
int double_left(void);

static const char *const known[] = {"sm__cycles_active.avg", "dram__bytes_read.sum.per_second", "ratio__without.pct",
                                    "needs__two_passes.sum"};
static struct device {
    uint64_t begin;
    int is_enabled, runs, fetched, fetches, is_clear;
    size_t image;
} devices[2];
/* Objects of hosts and devices that were not given back. */
static int made;
static int says_contexts;
#ifdef WITH_RANGES
static int evaluate_range(uint64_t *p);
static int ranges_of(const char *scenario);
static int wants_launches(uint32_t domain, uint32_t id);
#endif

#define SIZE(bytes) \
    if (p[0] != (bytes) || p[1] != 0) return INVALID
/* Handles: the address of a device; for a host's object, that of `made`. */
#define DEVICE(word)                                        \
    struct device *device = (struct device *)(size_t)(word); \
    if (device != &devices[0] && device != &devices[1]) return INVALID
#define HOST(word) \
    if ((word) != (uint64_t)(size_t)&made) return INVALID

int cuptiEnableCallback(uint32_t enable, void *subscriber, uint32_t domain, uint32_t id) {
    if (enable != 1 || subscriber != &subscribers) return INVALID;
#ifdef WITH_RANGES
    if (domain != 3 || id != 1) return wants_launches(domain, id);
#endif
    if (domain != 3 || id != 1) return INVALID;
    says_contexts = 1;
    return SUCCESS;
}

/* A context's handle is the number of its device plus 100. */
int cuptiGetDeviceId(void *context, uint32_t *device) {
    *device = (uint32_t)((size_t)context - 100);
    return SUCCESS;
}

int cuptiProfilerInitialize(uint64_t *p) {
    SIZE(16);
    return SUCCESS;
}

int cuptiDeviceGetChipName(uint64_t *p) {
    SIZE(32);
    if (p[2] > 1) return INVALID;
    p[3] = (uint64_t)(size_t) "GD100";
    return SUCCESS;
}

int cuptiPmSamplingGetCounterAvailability(uint64_t *p) {
    SIZE(40);
#ifdef FORBIDDEN
    return FORBIDDEN_CODE;
#endif
#ifdef MIG
    return MIG_CODE;
#endif
    if (p[4] == 0)
        p[3] = 24;
    else if (p[3] == 24)
        memset((void *)(size_t)p[4], 7, 24);
    else
        return INVALID;
    return SUCCESS;
}

int cuptiProfilerHostInitialize(uint64_t *p) {
#ifdef CUDA12
    SIZE(48);
#else
    SIZE(56);
    if (p[6] != 0) return INVALID;
#endif
    const char *chip = (const char *)(size_t)p[3];
    const uint8_t *available = (const uint8_t *)(size_t)p[4];
    uint32_t profiler = 1;
#ifdef WITH_RANGES
    profiler = 0;
#endif
    if ((uint32_t)p[2] != profiler || strcmp(chip, "GD100") != 0 || available[23] != 7) return INVALID;
    p[5] = (uint64_t)(size_t)&made;
    made++;
    return SUCCESS;
}

int cuptiProfilerHostDeinitialize(uint64_t *p) {
    SIZE(24);
    HOST(p[2]);
    made--;
    return SUCCESS;
}

static int place(const char *name) {
    for (int i = 0; i < 4; i++)
        if (strcmp(known[i], name) == 0) return i;
    return -1;
}

static int passes;

int cuptiProfilerHostConfigAddMetrics(uint64_t *p) {
    SIZE(40);
    HOST(p[2]);
    passes = 1;
    for (uint64_t i = 0; i < p[4]; i++) {
        int found = place(((const char **)(size_t)p[3])[i]);
        if (found < 0) return INVALID_NAME;
        if (found == 3) passes = 2;
    }
    return SUCCESS;
}

int cuptiProfilerHostGetConfigImageSize(uint64_t *p) {
    SIZE(32);
    HOST(p[2]);
    p[3] = 40;
    return SUCCESS;
}

int cuptiProfilerHostGetConfigImage(uint64_t *p) {
    SIZE(40);
    HOST(p[2]);
    if (p[3] != 40) return INVALID;
    memset((void *)(size_t)p[4], passes, 40);
    return SUCCESS;
}

int cuptiProfilerHostGetNumOfPasses(uint64_t *p) {
    SIZE(40);
    if (p[2] != 40) return INVALID;
    p[4] = ((uint8_t *)(size_t)p[3])[39];
    return SUCCESS;
}

int cuptiPmSamplingEnable(uint64_t *p) {
    SIZE(32);
    if (p[2] > 1 || devices[p[2]].is_enabled) return INVALID;
    devices[p[2]].is_enabled = 1;
    p[3] = (uint64_t)(size_t)&devices[p[2]];
    made++;
    return SUCCESS;
}

int cuptiPmSamplingDisable(uint64_t *p) {
    SIZE(24);
    DEVICE(p[2]);
    memset(device, 0, sizeof *device);
    made--;
    return SUCCESS;
}

int cuptiPmSamplingSetConfig(uint64_t *p) {
    SIZE(64);
    DEVICE(p[2]);
    uint32_t by_time = (uint32_t)p[7];
#ifdef NO_TIMER
    if (by_time) return INVALID;
#endif
    (void)by_time;
    if (p[3] != 40 || ((const uint8_t *)(size_t)p[4])[39] != 1) return INVALID;
    if (p[5] < 1 << 20 || p[6] != 100000 || p[7] >> 32 != 0) return INVALID;
    return device->is_enabled ? SUCCESS : INVALID;
}

int cuptiPmSamplingGetCounterDataSize(uint64_t *p) {
    SIZE(56);
    DEVICE(p[2]);
    if (place(((const char **)(size_t)p[3])[0]) < 0 || (uint32_t)p[5] < 500) return INVALID;
    p[6] = device->image = 8 * p[4] * (uint32_t)p[5];
    return SUCCESS;
}

int cuptiPmSamplingCounterDataImageInitialize(uint64_t *p) {
    SIZE(40);
    DEVICE(p[2]);
    if (p[3] != device->image) return INVALID;
    memset((void *)(size_t)p[4], 0, p[3]);
    device->is_clear = 1;
    return SUCCESS;
}

int cuptiPmSamplingStart(uint64_t *p) {
    SIZE(24);
    DEVICE(p[2]);
    device->runs = 1;
    device->begin = now();
    return SUCCESS;
}

int cuptiPmSamplingStop(uint64_t *p) {
    SIZE(24);
    DEVICE(p[2]);
    device->runs = 0;
    return SUCCESS;
}

/* An image of samples: MAGIC, the device, the first sample, the number of samples, and whether
 * there is a sample of no length. */
int cuptiPmSamplingDecodeData(uint64_t *p) {
    SIZE(45);
    DEVICE(p[2]);
    uint64_t *image = (uint64_t *)(size_t)p[3];
    if (p[4] != device->image || !device->is_clear) return INVALID;
    device->is_clear = 0;
#ifdef OVERFLOW
    if (device->fetches++ > 0) {
        ((uint8_t *)p)[44] = 1;
        return OUT_OF_MEMORY;
    }
#endif
    image[0] = MAGIC;
    image[1] = (uint64_t)(device - devices);
    image[2] = (uint64_t)device->fetched;
    image[3] = device->fetched < 6 ? 3 : 0;
    image[4] = !device->runs;
    device->fetched += (int)image[3];
    ((uint32_t *)p)[10] = 2;
    return SUCCESS;
}

int cuptiPmSamplingGetCounterDataInfo(uint64_t *p) {
    SIZE(56);
    const uint64_t *image = (const uint64_t *)(size_t)p[2];
    if (image[0] != MAGIC) return INVALID;
    p[4] = p[3] / 16;
    p[5] = p[6] = image[3] + image[4];
    return SUCCESS;
}

int cuptiPmSamplingCounterDataGetSampleInfo(uint64_t *p) {
    SIZE(64);
    DEVICE(p[2]);
    const uint64_t *image = (const uint64_t *)(size_t)p[3];
    if (p[5] >= image[3] + image[4]) return INVALID;
    uint64_t sample = image[2] + p[5];
    p[6] = device->begin + (p[5] < image[3] ? 100000 * sample : 0);
    p[7] = p[6] + (p[5] < image[3] ? 100000 : 0);
    return SUCCESS;
}

int cuptiProfilerHostEvaluateToGpuValues(uint64_t *p) {
    SIZE(72);
    HOST(p[2]);
    const uint64_t *image = (const uint64_t *)(size_t)p[3];
#ifdef WITH_RANGES
    return evaluate_range(p);
#endif
    uint64_t sample = image[2] + p[5];
    for (uint64_t i = 0; i < p[7]; i++) {
        int counter = place(((const char **)(size_t)p[6])[i]);
        double value = 1000.0 * (double)image[1] + 10.0 * (double)sample + counter;
        ((double *)(size_t)p[8])[i] = counter == 2 && sample % 2 ? NAN : value;
    }
    return SUCCESS;
}

/* Returns whether the scenario belongs to this file. */
static int counters(const char *scenario) {
    int is_silent = strcmp(scenario, "silent") == 0;
#ifdef WITH_RANGES
    if (ranges_of(scenario)) return 1;
#endif
    if (!is_silent && strcmp(scenario, "counters") != 0) return 0;
    for (size_t number = 0; number < 2; number++) {
        void *data[3] = {(void *)(100 + number), NULL, NULL};
        if (says_contexts) called(NULL, 3, 1, data);
    }
    if (is_silent) {
        call(1, 0, now(), 0);
        hand_over(0);
    } else {
        normal();
    }
    return 1;
}

int double_left(void) { return made; }
