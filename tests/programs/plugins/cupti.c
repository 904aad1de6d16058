/* A library with the part of CUPTI's interface that the plugin `cuda` uses, for tests on machines without
 * a device of NVIDIA's. Records have the places and sizes of CUDA 13.0's structs. Its clock is an hour
 * behind UTC. `double_run` makes the records of a small program, or broken ones:
 *
 *   normal   what the table below says
 *   flood    20,000 calls of cudaStreamSynchronize
 *   ranges   what NVTX marks, if InitializeInjectionNvtx2 was called: `step` of 1 us, in it `inner` of the
 *            domain CCCL, 300 ns, and the moment `now`; an end without a begin; `open`, which does not end
 *   two      two devices, each with a kernel of 100 ns on its stream 7, and a copy of 512 bytes from the first to
 *            the second; the second is GPU instance 3 and compute
 *            instance 1 of a GPU that MIG divides
 *   garbage  buffers and records that no CUPTI should give
 *
 *   correlation  calls                                      work
 *   1, 2, 3      cudaLaunchKernel, in the op 4242           saxpy on stream 7, 250 ns
 *   4            cudaMemcpyAsync                            1 MiB to the device, 300 ns
 *   5            cudaMemsetAsync                            4096 bytes, 20 ns
 *   6            cudaStreamSynchronize                      a wait of 90 ns
 *   7            cudaGraphLaunch                            two kernels of a graph, 50 ns each, on stream 8
 *   8            cudaMalloc, which fails with 2
 *   9            cudaGetDevice
 *   10           cudaLaunchKernel, whose kernel never ends
 *   11           cudaLaunchKernel                           a kernel without times
 *
 * -DBUSY: another profiler was first. -DLOST: kernels cannot be collected. -DOLD: a function that is
 * needed is missing. -DREFUSED: not even the version. -DCUDA11: records have the sizes of CUDA 11.8. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Chooses the size of a record: `now` in CUDA 13.0, and `then` in CUDA 11.8. */
#ifdef CUDA11
#define OF(now, then) (then)
#else
#define OF(now, then) (now)
#endif

enum { SUCCESS = 0, INVALID = 1, MAX_LIMIT = 12, INVALID_KIND = 21, BUSY_CODE = 39, UNKNOWN = 999 };

typedef void (*requested)(uint8_t **, size_t *, size_t *);
typedef void (*completed)(void *, uint32_t, uint8_t *, size_t, size_t);

int cuptiGetVersion(uint32_t *version);
int cuptiGetTimestamp(uint64_t *now);
int cuptiSubscribe(void **subscriber, void *callback, void *user);
int cuptiUnsubscribe(void *subscriber);
int cuptiActivityRegisterCallbacks(requested ask, completed give);
int cuptiActivityEnable(uint32_t kind);
int cuptiActivityDisable(uint32_t kind);
int cuptiActivityFlushAll(uint32_t flag);
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record);
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped);
int cuptiGetCallbackName(uint32_t domain, uint32_t function, const char **name);
int cuptiSetThreadIdType(uint32_t type);
int cuptiActivityPushExternalCorrelationId(uint32_t kind, uint64_t id);
int cuptiActivityPopExternalCorrelationId(uint32_t kind, uint64_t *last);
int InitializeInjectionNvtx2(const void *table);
int double_run(const char *scenario);
int double_collects(uint32_t kind);

static requested ask;
static completed give;
static uint8_t kinds[64];
static int subscribers;
static void (*called)(void *, uint32_t, uint32_t, const void *);
static size_t dropped;
static uint64_t op;

/* The buffer that is being filled, the offsets and the number of its records, the bytes that
 * they use, its size, and the index of the record that was read last. */
static uint8_t *buffer;
static size_t places[30000], count, used, size, current;
/* The mistake that cuptiActivityGetNextRecord makes. */
static enum { RIGHT, OUTSIDE, STUCK, FAILING } trick;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec - 3600ull * 1000000000u;
}

int cuptiGetVersion(uint32_t *version) {
#ifdef REFUSED
    (void)version;
    return UNKNOWN;
#else
    *version = 130001;
    return SUCCESS;
#endif
}

int cuptiGetTimestamp(uint64_t *out) {
    *out = now();
    return SUCCESS;
}

int cuptiSubscribe(void **subscriber, void *callback, void *user) {
    (void)user;
#ifdef BUSY
    (void)callback, (void)subscriber, (void)called;
    return BUSY_CODE;
#else
    if (subscribers++) return BUSY_CODE;
    called = (void (*)(void *, uint32_t, uint32_t, const void *))(size_t)callback;
    *subscriber = &subscribers;
    return SUCCESS;
#endif
}

int cuptiUnsubscribe(void *subscriber) {
    if (subscriber != &subscribers || subscribers == 0) return INVALID;
    subscribers = 0;
    return SUCCESS;
}

int cuptiActivityRegisterCallbacks(requested first, completed second) {
    ask = first;
    give = second;
    return SUCCESS;
}

#ifndef OLD
int cuptiActivityEnable(uint32_t kind) {
#ifdef LOST
    if (kind == 10) return UNKNOWN;
#endif
    if (kind >= 64) return INVALID_KIND;
    kinds[kind] = 1;
    return SUCCESS;
}
#endif

int cuptiActivityDisable(uint32_t kind) {
    kinds[kind % 64] = 0;
    return SUCCESS;
}

int cuptiSetThreadIdType(uint32_t type) { return type == 1 ? SUCCESS : INVALID; }

int cuptiActivityPushExternalCorrelationId(uint32_t kind, uint64_t id) {
    op = kind == 3 ? id : 0;
    return SUCCESS;
}

int cuptiActivityPopExternalCorrelationId(uint32_t kind, uint64_t *last) {
    (void)kind;
    *last = op;
    op = 0;
    return SUCCESS;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *out) {
    (void)context, (void)stream;
    *out = dropped;
    dropped = 0;
    return SUCCESS;
}

int cuptiGetCallbackName(uint32_t domain, uint32_t function, const char **name) {
    static const char *names[] = {"cudaLaunchKernel_v7000", "cudaMemcpyAsync_ptsz_v7000",
                                  "cudaMemsetAsync_v3020",  "cudaStreamSynchronize_v3020",
                                  "cudaGraphLaunch_v10000", "cudaMalloc_v3020",
                                  "cudaGetDevice_v3020"};
    if (domain == 1 && (function == 495 || function == 497)) {
        *name = function == 495 ? "cuStreamBeginCapture" : "cuStreamEndCapture";
        return SUCCESS;
    }
    if (domain != 2 || function >= sizeof names / sizeof *names) return INVALID;
    *name = names[function];
    return SUCCESS;
}

int cuptiActivityGetNextRecord(uint8_t *from, size_t valid, uint8_t **record) {
    (void)valid;
    size_t at = 0;
    if (trick == FAILING) return UNKNOWN;
    if (*record != NULL) {
        if (trick == OUTSIDE) {
            *record = from + (1 << 20) + 8;
            return SUCCESS;
        }
        if (trick == STUCK) return SUCCESS;
        if (from + places[current] != *record) return INVALID;
        at = current + 1;
    }
    if (at >= count) return MAX_LIMIT;
    current = at;
    *record = from + places[at];
    return SUCCESS;
}

/* Says that `more` bytes beyond the records are valid. */
static void hand_over(size_t more) {
    if (buffer != NULL) give(NULL, 0, buffer, size, used + more);
    buffer = NULL;
    count = used = 0;
}

int cuptiActivityFlushAll(uint32_t flag) {
    (void)flag;
    hand_over(0);
    return SUCCESS;
}

/* NULL if the plugin provides no buffer. A record of a kind that is not collected goes to a
 * buffer that nobody reads. */
static uint8_t *record(uint32_t kind, size_t bytes) {
    static uint8_t nowhere[256];
    size_t most = 0;
    if (kind < 64 && !kinds[kind]) return nowhere;
    if (buffer != NULL && (used + bytes > size || count == 30000)) hand_over(0);
    if (buffer == NULL) {
        ask(&buffer, &size, &most);
        if (buffer == NULL) {
            dropped++;
            return NULL;
        }
    }
    uint8_t *out = buffer + used;
    memset(out, 0xa5, bytes);
    memcpy(out, &kind, sizeof kind);
    places[count++] = used;
    used += bytes;
    return out;
}

static void put16(uint8_t *at, uint16_t value) { memcpy(at, &value, sizeof value); }
static void put32(uint8_t *at, uint32_t value) { memcpy(at, &value, sizeof value); }
static void put64(uint8_t *at, uint64_t value) { memcpy(at, &value, sizeof value); }

static void call(uint32_t correlation, uint32_t function, uint64_t start, uint32_t code) {
    if (op != 0) {
        uint8_t *external = record(39, 24);
        if (external != NULL) {
            put32(external + 4, 3);
            put64(external + 8, op);
            put32(external + 16, correlation);
        }
    }
    uint8_t *out = record(5, 40);
    if (out == NULL) return;
    put32(out + 4, function);
    put64(out + 8, start);
    put64(out + 16, start + 100);
    put32(out + 24, (uint32_t)getpid());
    put32(out + 28, (uint32_t)syscall(SYS_gettid));
    put32(out + 32, correlation);
    put32(out + 36, code);
}

static uint8_t *kernel(uint32_t correlation, uint32_t stream, const char *name, uint64_t start,
                   uint64_t length, uint64_t node) {
    uint8_t *out = record(10, OF(216, 200));
    if (out == NULL) return NULL;
    put16(out + 6, 32);
    put64(out + 16, start);
    put64(out + 24, start == 0 ? 0 : start + length);
    put32(out + 40, 0);
    put32(out + 44, 1);
    put32(out + 48, stream);
    for (int i = 0; i < 3; i++) {
        put32(out + 52 + 4 * i, i == 0 ? 1024 : 1);
        put32(out + 64 + 4 * i, i == 0 ? 256 : 1);
    }
    put32(out + 76, 16);
    put32(out + 80, 32);
    put32(out + 92, correlation);
    put64(out + 104, (uint64_t)(uintptr_t)name);
    put64(out + 144, node);
    return out;
}

static void device(uint32_t id, uint32_t context, const char *name) {
    uint8_t *out = record(8, OF(184, 176));
    put64(out + 16, 1ull << 30);
    put32(out + 44, 7);
    put32(out + 104, 9);
    put32(out + 108, 0);
    put32(out + 112, id);
    put64(out + 136, (uint64_t)(uintptr_t)name);
    out[145] = id == 0 ? 0 : 1;
    put32(out + 152, 3);
    put32(out + 156, 1);
    out = record(9, OF(32, 16));
    put32(out + 4, context);
    put32(out + 8, id);
}

static void two(void) {
    uint64_t begin = now();
    for (uint32_t id = 0; id < 2; id++) {
        device(id, 10 + id, id == 0 ? "NVIDIA First" : "NVIDIA Second");
        call(1 + id, 0, begin + 1000 * id, 0);
    }
    call(3, 1, begin + 2000, 0);
    for (uint32_t id = 0; id < 2; id++) {
        uint8_t *out = kernel(1 + id, 7, "of_each", begin + 1000 * id + 500, 100, 0);
        put32(out + 40, id);
        put32(out + 44, 10 + id);
    }
    uint8_t *out = record(22, 96);
    out[4] = 10, out[5] = 3, out[6] = 3;
    put64(out + 8, 512);
    put64(out + 16, begin + 2500);
    put64(out + 24, begin + 2600);
    put32(out + 32, 0);
    put32(out + 36, 10);
    put32(out + 40, 9);
    put32(out + 44, 0);
    put32(out + 52, 1);
    put32(out + 60, 3);
    put64(out + 72, 0);
    hand_over(0);
}

static void normal(void) {
    static char gone[] = "_Z5saxpyfPKfPf";
    uint64_t begin = now();
    uint8_t *out;
    device(0, 1, "NVIDIA Double");
    for (uint32_t i = 1; i <= 3; i++) call(i, 0, begin + 1000 * i, 0);
    op = 0;
    call(4, 1, begin + 4000, 0);
    call(5, 2, begin + 5000, 0);
    call(6, 3, begin + 6000, 0);
    call(7, 4, begin + 7000, 0);
    call(8, 5, begin + 8000, 2);
    call(9, 6, begin + 9000, 0);
    call(10, 0, begin + 10000, 0);
    call(11, 0, begin + 11000, 0);
    hand_over(0);
    for (uint32_t i = 1; i <= 3; i++) kernel(i, 7, gone, begin + 1000 * i + 500, 250, 0);
    out = record(1, OF(96, 88));
    out[4] = 1, out[5] = 2, out[6] = 3;
    put64(out + 8, 1 << 20);
    put64(out + 16, begin + 4500);
    put64(out + 24, begin + 4800);
    put32(out + 32, 0);
    put32(out + 36, 1);
    put32(out + 40, 7);
    put32(out + 44, 4);
    put64(out + 64, 0);
    out = record(2, 88);
    put64(out + 8, 4096);
    put64(out + 16, begin + 5500);
    put64(out + 24, begin + 5520);
    put32(out + 32, 0);
    put32(out + 36, 1);
    put32(out + 40, 7);
    put32(out + 44, 5);
    put16(out + 50, 3);
    put64(out + 64, 0);
    out = record(38, OF(56, 40));
    put32(out + 4, 3);
    put64(out + 8, begin + 6005);
    put64(out + 16, begin + 6095);
    put32(out + 24, 6);
    put32(out + 28, 1);
    put32(out + 32, 7);
    kernel(7, 8, "double_plus_one", begin + 7500, 50, 21);
    kernel(7, 8, "double_plus_one", begin + 7600, 50, 22);
    kernel(11, 8, "double_plus_one", 0, 0, 0);
    hand_over(0);
    /* CUPTI may free a kernel's name after it has given back the buffer that refers to it. */
    memset(gone, 'x', sizeof gone - 1);
}

static int sees_ranges;

int InitializeInjectionNvtx2(const void *table) {
    sees_ranges = table != NULL;
    return 1;
}

static void mark(uint32_t what, uint32_t id, uint64_t time, const char *name, const char *domain) {
    uint8_t *out = record(12, 56);
    if (out == NULL) return;
    put32(out + 4, what);
    put64(out + 8, time);
    put32(out + 16, id);
    put32(out + 20, 2);
    put32(out + 24, (uint32_t)getpid());
    put32(out + 28, (uint32_t)syscall(SYS_gettid));
    put64(out + 40, (uint64_t)(uintptr_t)name);
    put64(out + 48, (uint64_t)(uintptr_t)domain);
}

static void ranges(void) {
    uint64_t begin = now();
    if (!sees_ranges) return;
    mark(2, 1, begin + 1000, "step", NULL);
    mark(2, 2, begin + 1200, "inner", "CCCL");
    mark(4, 2, begin + 1500, NULL, "CCCL");
    mark(1, 3, begin + 1600, "now", NULL);
    mark(4, 1, begin + 2000, NULL, NULL);
    mark(4, 9, begin + 2100, NULL, NULL);
    mark(2, 4, begin + 3000, "open", NULL);
    hand_over(0);
}

static void garbage(void) {
    /* A record of a kernel with less than half of its bytes, and one of an unknown kind. */
    record(10, 96);
    record(5000, 64);
    hand_over(0);
    /* The valid bytes end beyond the buffer. */
    record(5, 40);
    hand_over((size_t)1 << 30);
    /* The second record is outside of the buffer; it is the first again; the function fails. */
    for (trick = OUTSIDE; trick <= FAILING; trick++) {
        call(1, 3, now(), 0);
        call(2, 3, now(), 0);
        hand_over(0);
    }
    trick = RIGHT;
    /* A buffer that the plugin did not provide, and a null pointer. */
    static uint8_t foreign[64];
    give(NULL, 0, foreign, sizeof foreign, sizeof foreign);
    give(NULL, 0, NULL, 0, 0);
}

#ifdef WITH_COUNTERS
static int counters(const char *scenario);
#endif

int double_collects(uint32_t kind) { return kinds[kind % 64]; }

int double_run(const char *scenario) {
    if (ask == NULL || give == NULL) return -1;
#ifdef WITH_COUNTERS
    if (counters(scenario)) return 0;
#endif
    if (strcmp(scenario, "normal") == 0) normal();
    if (strcmp(scenario, "ranges") == 0) ranges();
    if (strcmp(scenario, "two") == 0) two();
    if (strcmp(scenario, "garbage") == 0) garbage();
    if (strcmp(scenario, "flood") == 0) {
        uint64_t begin = now();
        op = 0;
        for (uint32_t i = 1; i <= 20000; i++) call(i, 3, begin + i, 0);
    }
    return 0;
}
