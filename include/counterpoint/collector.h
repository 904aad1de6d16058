/* A collector is a user's code that reads values of its own (a device's counters, an allocator's
 * statistics) before and after each op of a model. It returns a fixed number of values, which are
 * recorded together with the call of the op.
 *
 *     static void* start(void* self, counterpoint_device_t device) { return begin(device); }
 *     static int32_t stop(void* self, void* state, counterpoint_value_t* values, uint32_t slots) {
 *       values[0] = counterpoint_count(hits(state));
 *       return 0;
 *     }
 *     static const counterpoint_slot_t slots[] = {{"l2 hits", COUNTERPOINT_COUNT}};
 *     static const counterpoint_collector_t mine = {
 *         .size = sizeof(mine), .slots = 1, .name = "mine", .slot = slots,
 *         .start = start, .stop = stop};
 *     int32_t number = agent->collector_add(&mine);   // agent.h
 *
 * When. A collector is called before and after each recorded op of TVM's virtual machines, of
 * PyTorch and of hosts of host.h, on the op's thread. Its calls nest as the ops nest. `start` runs
 * before the recorder's own readings and `stop` after them. So a collector's time is not part of
 * the op's duration, but it is part of the duration of any op around it. If an op of TVM throws,
 * the state is passed to `abandon`, if that exists, instead of `stop`.
 *
 * Who frees. `collector_add` copies the struct, its texts and its slots. `self` and the functions
 * must stay valid until the process ends, even after `collector_remove`, because another thread may
 * still be in a call of the collector. The state that `start` returns belongs to the collector, and
 * is passed once, to either `stop` or `abandon`.
 *
 * Errors. If `stop` returns anything but 0, or fills a slot that is not its own, this counts as the
 * loss `collector_failed` and none of its values is recorded. The model continues. A single invalid
 * value (a number that is infinite or NaN, or a text that is null) is left out and counted in the
 * same way. Collectors must not throw, and must not call functions of the agent's table except
 * `ticks`. Several threads may call a collector at once.
 */
#ifndef COUNTERPOINT_COLLECTOR_H_
#define COUNTERPOINT_COLLECTOR_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The largest number of slots that all collectors together may have. */
#define COUNTERPOINT_MOST_SLOTS 16

enum {
  COUNTERPOINT_COUNT = 0,    /* whole number, signed */
  COUNTERPOINT_DURATION = 1, /* microseconds */
  COUNTERPOINT_PERCENT = 2,  /* 100 means all of it */
  COUNTERPOINT_RATIO = 3,
  COUNTERPOINT_TEXT = 4      /* C string, copied after `stop` returns */
};

typedef struct counterpoint_device {
  int32_t type; /* DLDeviceType: 1 CPU, 2 CUDA ... */
  int32_t id;
} counterpoint_device_t; /* laid out as DLDevice */

typedef struct counterpoint_slot {
  /* The name of the value in views. It must differ from the names of all other slots, of the
   * columns of every view (docs/schema.md) and of all counters of the session. Capitals,
   * separators (space, _, -) and a unit at the end make no difference: "duration" and "Duration
   * (us)" are the same name. */
  const char* name;
  uint32_t kind;    /* one of the above */
} counterpoint_slot_t;

typedef struct counterpoint_value {
  union {
    int64_t count;
    double number;
    const char* text;
  } as;
  uint64_t filled; /* 0 (as before `stop`): the value is missing, which is not 0 */
} counterpoint_value_t;

typedef struct counterpoint_collector {
  uint32_t size;  /* bytes of this struct */
  uint32_t slots; /* at least 1 */
  const char* name;
  const counterpoint_slot_t* slot;
  void* self;
  /* `device` is the device of the op's last tensor argument, or CPU 0 if the op has no tensor
   * argument. Returns the state for `stop` or `abandon`. */
  void* (*start)(void* self, counterpoint_device_t device);
  /* Fills the `slots` elements of `values`. Returns 0 if it succeeded. */
  int32_t (*stop)(void* self, void* state, counterpoint_value_t* values, uint32_t slots);
  /* Called instead of `stop` if the op threw. May be null. */
  void (*abandon)(void* self, void* state);
} counterpoint_collector_t;

/* agent->collector_add returns the collector's number, which is 0 or more. It returns -1 if the
 * struct is incomplete or has an unknown kind; -2 if there would be too many slots, or more than
 * 8 collectors; -3 if two slots would have the same name; -4 if a column of a view, or a counter
 * of the present recording, has the name of a slot, or if a name is empty or only a unit. If a
 * counter of a later session has the same name as a slot, that session's views call the slot
 * "NAME (collector)". agent->collector_remove returns 0, or -1 if there is no collector with
 * that number. The slots of a removed collector can be used again at once. */

static inline counterpoint_value_t counterpoint_count(int64_t count) {
  counterpoint_value_t value;
  value.as.count = count;
  value.filled = 1;
  return value;
}

static inline counterpoint_value_t counterpoint_number(double number) {
  counterpoint_value_t value;
  value.as.number = number;
  value.filled = 1;
  return value;
}

static inline counterpoint_value_t counterpoint_text(const char* text) {
  counterpoint_value_t value;
  value.as.text = text;
  value.filled = 1;
  return value;
}

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_COLLECTOR_H_ */
