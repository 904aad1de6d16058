/* cupti_pm.c with the part of CUPTI's interface that counts in ranges (update 2 of CUDA 12.6 and
 * later), in place of samples. Each struct that the caller passes must have the size and the places
 * of fields of CUDA 13.5. The code here reads and writes the fields as 64-bit words. The numbers of
 * the driver's functions are those of cupti_driver_cbid.h. `double_run` has these scenarios:
 *
 *   launches  what the table says, on contexts of the devices 0 and 1
 *   crowd     two threads, each with 20 launches of `of_crowd` on the context of device 0
 *   stuck     a launch of `waits` that does not end before another thread has launched
 *             `awaited`; then `later`
 *   late      a launch of `late` whose kernel goes on after the launch has returned, and does not end before another
 *             thread has launched `awaited`; then `later`
 *   gone      launches `before` on device 0, destroys its context, and launches `after` on another one with the same
 *             address
 *   untold    the same, but nobody is told that the context is destroyed
 *   captures  `before` on device 0; during a capture `captured` on device 0, which does not run, and `elsewhere` on
 *             device 1; `after`, when the next capture has failed to begin
 *   streams   `first` (cuLaunchKernel), `second` (cuLaunchKernelEx) and a graph on the stream 0x77, of which
 *             cuda_driver.c says that it is captured, so that they do not run; and `other` on the stream 0x78
 *
 *   correlation  function                              kernels
 *   1            cuLaunchKernel, in the op 4242        saxpy on device 0
 *   2            cuLaunchKernelEx                      double_plus_one on device 1
 *   3            cuGraphLaunch                         two on device 0
 *   4            cuLaunchKernel, which fails           none
 *   5            cuLaunchKernel_ptsz                   one that CUPTI gives two ranges for, on device 0
 *   6            cuMemAlloc
 *
 * A launch without a kernel has not all of its counters. Starting or stopping during a capture is an error that
 * double_left shows, and so is the use of an object whose context was destroyed. The contexts of the devices 0 and 1 have
 * the numbers 1 and 2, and each later one a new number.
 *
 * Kernel k of the program, from 0, has 1000 d + 10 k + c for counter c on device d; cupti_pm.c has
 * the names. Of these kernels, only kernel 0 has a value of ratio__without.pct. `double_op(device)`
 * launches a kernel without callbacks that a range around it counts, as kernels in a range of the
 * user's do: 5 + c for each kernel in it.
 *
 * -DCUDA12: structs end as in CUDA 12.6. -DRANGES_FORBIDDEN: only root may read counters. -DNO_START: starting fails. */
#define WITH_RANGES
#include "cupti_pm.c"

#include <pthread.h>

enum { NO_START_CODE = 27, LAUNCH = 307, LAUNCH_PTSZ = 442, LAUNCH_EX = 652, GRAPH = 514, MEMORY = 243 };
enum { BEGIN_CAPTURE = 495, END_CAPTURE = 497 };

WORDS(cuptiProfilerGetCounterAvailability);
WORDS(cuptiRangeProfilerEnable);
WORDS(cuptiRangeProfilerDisable);
WORDS(cuptiRangeProfilerSetConfig);
WORDS(cuptiRangeProfilerGetCounterDataSize);
WORDS(cuptiRangeProfilerCounterDataImageInitialize);
WORDS(cuptiRangeProfilerStart);
WORDS(cuptiRangeProfilerStop);
WORDS(cuptiRangeProfilerPushRange);
WORDS(cuptiRangeProfilerPopRange);
WORDS(cuptiRangeProfilerDecodeData);
WORDS(cuptiRangeProfilerGetCounterDataInfo);
int cuptiGetContextId(void *context, uint32_t *id);
int double_op(int device);

/* A context's handle is the number of its device plus 100. */
static struct ranges {
    int is_enabled, is_set, runs, is_pushed, is_user, is_clear, count;
    size_t length;
    uint64_t most;
    uint8_t *data;
    /* The number of each range's kernel, and the kernels in each range. */
    int kernels[600], sizes[600];
} contexts[2];
static uint8_t wanted[1024];
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static uint32_t ids[2] = {1, 2};
static int is_capturing;
/* Whether another thread has launched `awaited`, and whether the kernel of `late`, which waits
 * for this, was launched. */
static volatile int is_launched, waits_for_launch;

#define RANGES(word)                                          \
    struct ranges *context = (struct ranges *)(size_t)(word); \
    if (context != &contexts[0] && context != &contexts[1]) return INVALID

/* The size is `now` in CUDA 13.5, and `then` in CUDA 12.6. */
#ifdef CUDA12
#define SINCE(now, then) SIZE(then)
#else
#define SINCE(now, then) SIZE(now)
#endif

static int wants_launches(uint32_t domain, uint32_t id) {
    if (domain == 3 && id == 2) return SUCCESS;
    if (domain != 1 || id >= sizeof wanted) return INVALID;
    wanted[id] = 1;
    return SUCCESS;
}

int cuptiProfilerGetCounterAvailability(uint64_t *p) {
    SINCE(41, 40);
#ifdef RANGES_FORBIDDEN
    return FORBIDDEN_CODE;
#endif
    if (p[2] != 100 && p[2] != 101) return INVALID;
    if (p[4] == 0)
        p[3] = 24;
    else if (p[3] == 24)
        memset((void *)(size_t)p[4], 7, 24);
    else
        return INVALID;
    return SUCCESS;
}

int cuptiRangeProfilerEnable(uint64_t *p) {
    SINCE(36, 32);
    if (p[2] != 100 && p[2] != 101) return INVALID;
    struct ranges *context = &contexts[p[2] - 100];
    if (context->is_enabled) return INVALID;
    memset(context, 0, sizeof *context);
    context->is_enabled = 1;
    p[3] = (uint64_t)(size_t)context;
    made++;
    return SUCCESS;
}

int cuptiRangeProfilerDisable(uint64_t *p) {
    SIZE(24);
    RANGES(p[2]);
    if (!context->is_enabled) {
        made += 100;
        return INVALID;
    }
    context->is_enabled = 0;
    made--;
    return SUCCESS;
}

int cuptiRangeProfilerGetCounterDataSize(uint64_t *p) {
    SIZE(64);
    RANGES(p[2]);
    if (place(((const char **)(size_t)p[3])[0]) < 0 || p[5] != (uint32_t)p[6] || p[5] == 0) return INVALID;
    context->most = p[5];
    p[7] = context->length = 16 + 8 * p[4] * p[5];
    return SUCCESS;
}

int cuptiRangeProfilerCounterDataImageInitialize(uint64_t *p) {
    SIZE(40);
    RANGES(p[2]);
    if (p[3] != context->length) return INVALID;
    memset((void *)(size_t)p[4], 0, p[3]);
    context->is_clear = 1;
    return SUCCESS;
}

int cuptiRangeProfilerSetConfig(uint64_t *p) {
    SIZE(90);
    RANGES(p[2]);
    uint32_t range = (uint32_t)p[7], replay = (uint32_t)(p[7] >> 32);
    uint16_t levels = (uint16_t)p[9], least = (uint16_t)(p[9] >> 16), level = ((uint16_t *)p)[44];
    int is_kernel = range == 1 && replay == 2, is_user = range == 2 && replay == 3;
    if (p[3] != 40 || p[5] != context->length || (!is_kernel && !is_user) || p[8] != context->most) return INVALID;
    if (levels != 1 || least != 1 || p[10] != 0 || level != 1 || context->runs) return INVALID;
    /* More than one pass is refused for a user's range: the user would have to run the work
     * again. */
    if (is_user && ((const uint8_t *)(size_t)p[4])[39] != 1) return INVALID;
    context->data = (uint8_t *)(size_t)p[6];
    context->is_user = is_user;
    context->is_set = 1;
    return SUCCESS;
}

int cuptiRangeProfilerStart(uint64_t *p) {
    SIZE(24);
    RANGES(p[2]);
#ifdef NO_START
    return NO_START_CODE;
#endif
    if (is_capturing) made += 1000;
    if (!context->is_enabled || !context->is_set || context->runs || !context->is_clear) return INVALID;
    context->runs = 1;
    context->count = 0;
    return SUCCESS;
}

int cuptiRangeProfilerPushRange(uint64_t *p) {
    SIZE(32);
    RANGES(p[2]);
    if (!context->runs || !context->is_user || context->is_pushed || strcmp((const char *)(size_t)p[3], "op") != 0) return INVALID;
    context->is_pushed = 1;
    context->sizes[0] = 0;
    return SUCCESS;
}

int cuptiRangeProfilerPopRange(uint64_t *p) {
    SIZE(24);
    RANGES(p[2]);
    if (!context->is_pushed) return INVALID;
    context->is_pushed = 0;
    context->count = context->sizes[0] > 0;
    return SUCCESS;
}

static void wait_for_launch(int is_needed) {
    for (int i = 0; is_needed && !is_launched; i++) {
        usleep(1000);
        if (i > 60000) abort();
    }
    if (is_needed) waits_for_launch = 0;
}

int cuptiGetContextId(void *context, uint32_t *id) {
    if ((size_t)context != 100 && (size_t)context != 101) return INVALID;
    *id = ids[(size_t)context - 100];
    return SUCCESS;
}

int cuptiRangeProfilerStop(uint64_t *p) {
    SIZE(41);
    RANGES(p[2]);
    if (!context->runs || context->is_pushed) return INVALID;
    if (is_capturing) made += 1000;
    /* Like CUPTI, this function waits for the kernels. */
    wait_for_launch(waits_for_launch);
    context->runs = 0;
    /* The next pass needs a new configuration. */
    if (context->is_user) context->is_set = 0;
    ((uint8_t *)p)[40] = context->count > 0;
    return SUCCESS;
}

/* MAGIC and the address of the context. */
int cuptiRangeProfilerDecodeData(uint64_t *p) {
    SIZE(32);
    RANGES(p[2]);
    if (context->runs || !context->is_clear || context->data == NULL) return INVALID;
    uint64_t head[2] = {MAGIC, (uint64_t)(size_t)context};
    memcpy(context->data, head, sizeof head);
    context->is_clear = 0;
    p[3] = context->count > (int)context->most ? (uint64_t)context->count - context->most : 0;
    return SUCCESS;
}

int cuptiRangeProfilerGetCounterDataInfo(uint64_t *p) {
    SIZE(40);
    const uint64_t *data = (const uint64_t *)(size_t)p[2];
    if (data[0] != MAGIC) return INVALID;
    RANGES(data[1]);
    p[4] = context->count > (int)context->most ? context->most : (uint64_t)context->count;
    return SUCCESS;
}

static int evaluate_range(uint64_t *p) {
    const uint64_t *data = (const uint64_t *)(size_t)p[3];
    if (data[0] != MAGIC) return INVALID;
    RANGES(data[1]);
    if (p[4] != context->length || p[5] >= (uint64_t)context->count) return INVALID;
    for (uint64_t i = 0; i < p[7]; i++) {
        int counter = place(((const char **)(size_t)p[6])[i]);
        double value = 1000.0 * (double)(context - contexts) + 10.0 * context->kernels[p[5]] + counter;
        if (context->is_user) value = context->sizes[0] * (5.0 + counter);
        ((double *)(size_t)p[8])[i] = counter == 2 && context->kernels[p[5]] > 0 ? NAN : value;
    }
    return SUCCESS;
}

struct callback {
    uint32_t site;
    const char *function;
    const void *parameters;
    int *result;
    const char *symbol;
    void *context;
    uint32_t context_id;
    uint64_t *user;
    uint32_t correlation;
};

static pthread_t other;
static int kernel_number;
static size_t stream;

static void *launch_awaited(void *unused);

/* A program calls a function of the driver, which launches `kernels` kernels and returns `code`.
 * The subscriber's callback comes before and after it, if it was enabled. */
static void drive(uint32_t function, int device, uint32_t correlation, const char *name, int kernels, int code) {
    uint64_t user = 0;
    /* The beginnings of cuLaunchKernel_params, CUlaunchConfig, cuLaunchKernelEx_params and cuGraphLaunch_params. */
    struct {
        void *function;
        uint32_t sizes[7];
        size_t stream;
    } launch = {NULL, {0}, stream};
    struct {
        uint32_t sizes[7];
        size_t stream;
    } config = {{0}, stream};
    const void *launch_ex[1] = {&config};
    size_t graph[2] = {0, stream};
    const void *parameters = function == LAUNCH_EX ? (void *)launch_ex : function == GRAPH ? (void *)graph : (void *)&launch;
    void *address = (void *)(size_t)(100 + device);
    struct callback data = {0, "cu", parameters, NULL, name, address, ids[device], &user, correlation};
    if (wanted[function]) called(NULL, 1, function, &data);
    int waits = name != NULL && strcmp(name, "waits") == 0, is_late = name != NULL && strcmp(name, "late") == 0;
    if (is_late) waits_for_launch = 1;
    if (waits || is_late) pthread_create(&other, NULL, launch_awaited, NULL);
    wait_for_launch(waits);
    pthread_mutex_lock(&one);
    struct ranges *context = &contexts[device];
    for (int i = 0; i < kernels; i++) {
        int number = kernel_number++;
        if (!context->runs || context->is_user) continue;
        /* A kernel of cuLaunchKernel_ptsz gets two ranges. */
        for (int again = 0; again < 1 + (function == LAUNCH_PTSZ); again++) context->kernels[context->count++] = number;
    }
    pthread_mutex_unlock(&one);
    data.site = 1;
    data.result = &code;
    if (wanted[function]) called(NULL, 1, function, &data);
}

static void *launches_of_crowd(void *unused) {
    for (uint32_t i = 0; i < 20; i++) drive(LAUNCH, 0, 100 + i, "of_crowd", 1, 0);
    return unused;
}

static void *launch_awaited(void *unused) {
    drive(LAUNCH, 0, 2, "awaited", 1, 0);
    is_launched = 1;
    return unused;
}

/* The subscriber hears of it only if `is_told`. A later context has the same address and another
 * number. */
static void destroy(int device, int is_told) {
    void *data[3] = {(void *)(size_t)(100 + device), NULL, NULL};
    if (is_told) called(NULL, 3, 2, data);
    if (contexts[device].is_enabled && is_told) made += 100;
    /* The object for counting in ranges is destroyed with its context. */
    if (contexts[device].is_enabled) made--;
    contexts[device].is_enabled = 0;
    ids[device] += 2;
}

static int ranges_of(const char *scenario) {
    pthread_t threads[2];
    if (strcmp(scenario, "launches") == 0) {
        device(0, 1, "NVIDIA Double");
        call(1, 0, now(), 0);
        op = 0;
        drive(LAUNCH, 0, 1, "_Z5saxpyfPKfPf", 1, 0);
        drive(LAUNCH_EX, 1, 2, "double_plus_one", 1, 0);
        drive(GRAPH, 0, 3, NULL, 2, 0);
        drive(LAUNCH, 0, 4, "fails", 0, 1);
        drive(LAUNCH_PTSZ, 0, 5, "twice", 1, 0);
        drive(MEMORY, 0, 6, NULL, 0, 0);
        hand_over(0);
    } else if (strcmp(scenario, "crowd") == 0) {
        for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, launches_of_crowd, NULL);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    } else if (strcmp(scenario, "stuck") == 0) {
        drive(LAUNCH, 0, 1, "waits", 1, 0);
        pthread_join(other, NULL);
        drive(LAUNCH, 0, 3, "later", 1, 0);
    } else if (strcmp(scenario, "late") == 0) {
        drive(LAUNCH, 0, 1, "late", 1, 0);
        pthread_join(other, NULL);
        drive(LAUNCH, 0, 3, "later", 1, 0);
    } else if (strcmp(scenario, "gone") == 0 || strcmp(scenario, "untold") == 0) {
        drive(LAUNCH, 0, 1, "before", 1, 0);
        destroy(0, strcmp(scenario, "gone") == 0);
        drive(LAUNCH, 0, 2, "after", 1, 0);
    } else if (strcmp(scenario, "captures") == 0) {
        drive(LAUNCH, 0, 1, "before", 1, 0);
        drive(BEGIN_CAPTURE, 0, 2, NULL, 0, 0);
        is_capturing = 1;
        drive(LAUNCH, 0, 3, "captured", 0, 0);
        drive(LAUNCH, 1, 4, "elsewhere", 1, 0);
        is_capturing = 0;
        drive(END_CAPTURE, 0, 5, NULL, 0, 0);
        drive(BEGIN_CAPTURE, 0, 6, NULL, 0, 1);
        drive(LAUNCH, 0, 7, "after", 1, 0);
    } else if (strcmp(scenario, "streams") == 0) {
        stream = 0x77;
        is_capturing = 1;
        drive(LAUNCH, 0, 1, "first", 0, 0);
        drive(LAUNCH_EX, 0, 2, "second", 0, 0);
        drive(GRAPH, 0, 3, NULL, 0, 0);
        is_capturing = 0;
        stream = 0x78;
        drive(LAUNCH, 0, 4, "other", 1, 0);
    } else {
        return 0;
    }
    return 1;
}

int double_op(int device) {
    if (contexts[device].is_pushed) contexts[device].sizes[0]++;
    return SUCCESS;
}
