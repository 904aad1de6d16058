/* A user's collector: reads something of its own (a device's counters, an allocator's statistics)
 * before and after each op of a model, and gives a fixed number of values that are kept behind the
 * op's call.
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
 * When. Around each op of every virtual machine, on the op's thread; nested ops nest. `start` runs
 * before and `stop` behind the recorder's own readings, so that a collector's time is in no op's
 * duration but in that of what encloses it. An op that throws has no `stop`: the state is given to
 * `abandon` if there is one.
 *
 * Who frees. `add` copies the struct, its texts and its slots; `self` and the functions must live
 * until the process ends, also after `remove` (another thread may be in a call). What `start`
 * returns belongs to the collector; `stop` or `abandon` is called once for it.
 *
 * What goes wrong. A `stop` that returns anything but 0, or that fills a slot which is not its own,
 * is counted as the loss `collector_failed`, and its values are left out; the model goes on. So is a
 * single value that is nothing: a number that is infinite or none (NaN), a text that is null.
 * Collectors must not throw, must not call the agent's table but for `ticks`, and may be called by
 * several threads at once.
 */
#ifndef COUNTERPOINT_COLLECTOR_H_
#define COUNTERPOINT_COLLECTOR_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How many slots all collectors may have together. */
#define COUNTERPOINT_MOST_SLOTS 16

/* What a value is. */
enum {
  COUNTERPOINT_COUNT = 0,    /* whole number, signed */
  COUNTERPOINT_DURATION = 1, /* microseconds */
  COUNTERPOINT_PERCENT = 2,  /* of a hundred */
  COUNTERPOINT_RATIO = 3,
  COUNTERPOINT_TEXT = 4      /* C string, copied behind `stop` */
};

typedef struct counterpoint_device {
  int32_t type; /* DLDeviceType: 1 CPU, 2 CUDA ... */
  int32_t id;
} counterpoint_device_t; /* laid out as DLDevice */

typedef struct counterpoint_slot {
  /* What views call the value. Unlike every other slot's name, every column that a view has of its
   * own (docs/schema.md) and every counter of the session: capitals, separators (space, _, -) and a
   * unit at the end ("duration", "Duration (us)") make no difference. */
  const char* name;
  uint32_t kind;    /* one of the above */
} counterpoint_slot_t;

typedef struct counterpoint_value {
  union {
    int64_t count;
    double number;
    const char* text;
  } as;
  uint64_t filled; /* 0, as it is before `stop`: there is no value this time (which is not 0) */
} counterpoint_value_t;

typedef struct counterpoint_collector {
  uint32_t size;  /* bytes of this struct */
  uint32_t slots; /* from 1 */
  const char* name;
  const counterpoint_slot_t* slot;
  void* self;
  /* The op's device: that of its last tensor argument, CPU 0 if it has none. */
  void* (*start)(void* self, counterpoint_device_t device);
  /* Fills `values[0 .. slots]`. 0: done. */
  int32_t (*stop)(void* self, void* state, counterpoint_value_t* values, uint32_t slots);
  /* The op has thrown. May be null. */
  void (*abandon)(void* self, void* state);
} counterpoint_collector_t;

/* agent->collector_add: the collector's number, from 0; -1 the struct is incomplete or of an unknown
 * kind, -2 there are too many slots or collectors, -3 a slot of that name exists, -4 a view has a
 * column of that name, or the session that is open counts it. From the next op on. A slot whose name
 * is that of a counter of a session which begins later is called "NAME (collector)" there.
 * agent->collector_remove: 0; -1 there is none of that number. Its slots are free again once no
 * session is open. */

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
