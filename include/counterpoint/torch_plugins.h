/* The table through which the shim uses profiler plugins inside PyTorch's own profiler.
 *
 * libcounterpoint.so loads the plugins of KINETO_PLUGIN_LIB_DIR_PATH and calls them. The shim
 * registers one child profiler with PyTorch for each profiler of a plugin, and passes every call of
 * PyTorch on to libcounterpoint.so. torch.h describes what all tables have in common.
 */
#ifndef COUNTERPOINT_TORCH_PLUGINS_H_
#define COUNTERPOINT_TORCH_PLUGINS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COUNTERPOINT_TORCH_PLUGINS_VERSION 1

/* One recording of one profiler. */
typedef struct counterpoint_torch_session counterpoint_torch_session_t;

enum {
  COUNTERPOINT_TORCH_STACK_OPS = 0,  /* ids of operators, PyTorch's "External id" */
  COUNTERPOINT_TORCH_STACK_USER = 1  /* ids of ranges that the program marks */
};

typedef struct counterpoint_torch_pair {
  const char* key;
  const char* json; /* one JSON value */
} counterpoint_torch_pair_t;

typedef struct counterpoint_torch_value {
  const char* series;
  double value; /* finite */
} counterpoint_torch_value_t;

/* PyTorch's JSON writer escapes almost nothing, so the texts are made safe for it: names and
 * keys are printable ASCII without quotation marks and backslashes, and JSON values contain no
 * escapes. */
typedef struct counterpoint_torch_event {
  uint32_t size;
  uint32_t kind;     /* KINETO_PLUGIN_PROFILE_EVENT_TYPE_..., a published one */
  int64_t start_ns;  /* since 1970 UTC */
  int64_t end_ns;    /* not before start_ns */
  int32_t id;        /* correlation id, 0: none, never negative */
  int32_t device;    /* device, or process for work of the CPU */
  int32_t resource;  /* stream, or thread for work of the CPU */
  uint32_t flow_type;/* 0: no flow; else KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_... */
  uint32_t flow_id;  /* unique among the flows of plugins in this recording */
  uint32_t flow_is_start;
  const char* name;
  const counterpoint_torch_pair_t* metadata;
  size_t metadata_count;
  const counterpoint_torch_value_t* values; /* of a counter event, whose name is its track's */
  size_t value_count;
} counterpoint_torch_event_t;

/* Receives the events of a session during a call of `process`, one at a time, on its thread. The
 * functions must not throw, and must copy what they keep. */
typedef struct counterpoint_torch_sink {
  uint32_t size;
  void* handle;
  void (*event)(void* handle, const counterpoint_torch_event_t* event);
  /* Receives the row of a device, before the rows of the device's streams. */
  void (*device)(void* handle, int64_t device, int64_t sort_index, const char* name,
                 const char* label);
  /* Receives the row of a stream or of a thread. */
  void (*resource)(void* handle, int64_t device, int64_t resource, int64_t order,
                   const char* name);
} counterpoint_torch_sink_t;

/* Environment variables that switch off parts of PyTorch's profiler. */
enum {
  COUNTERPOINT_TORCH_NO_CUPTI = 1 /* KINETO_DISABLE_CUPTI: not to use CUPTI */
};

typedef struct counterpoint_torch_plugins {
  uint32_t size;    /* bytes of this table */
  uint32_t version; /* COUNTERPOINT_TORCH_PLUGINS_VERSION */

  /* Writes a line for the user. */
  void (*say)(const char* line);
  /* Returns which of these variables are set, as bits COUNTERPOINT_TORCH_NO_... */
  uint32_t (*switches)(void);
  /* Loads the plugins at its first call. Returns the number of profilers that can be used. */
  uint32_t (*load)(void);
  /* `profiler` is a number from 0 and below the result of `load`. The text is safe for PyTorch's
   * writer and valid until the process ends. */
  const char* (*name)(uint32_t profiler);
  /* Begins a recording. `kinds` are the published event types that PyTorch requests.
   * `configuration` has PyTorch's settings for this recording, as lines KEY=VALUE. Returns null
   * if the plugin takes no part. */
  counterpoint_torch_session_t* (*create)(uint32_t profiler, const uint32_t* kinds, size_t count,
                                          const char* configuration);
  /* Bit COUNTERPOINT_TORCH_STACK_x is set if the plugin wants the ids of that stack. */
  uint32_t (*stacks)(const counterpoint_torch_session_t*);
  /* The shim calls `start`, `stop` and `process` in this order, on any thread. Between `start`
   * and `stop`, `toggle` pauses (0) and resumes (1) the recording. The result is 0, or -1 if the
   * plugin failed; the recording continues in any case. */
  int32_t (*start)(counterpoint_torch_session_t*);
  int32_t (*toggle)(counterpoint_torch_session_t*, uint32_t enabled);
  int32_t (*stop)(counterpoint_torch_session_t*);
  int32_t (*process)(counterpoint_torch_session_t*, const counterpoint_torch_sink_t*);
  /* Ends the recording. The session must not be used afterwards. */
  void (*destroy)(counterpoint_torch_session_t*);
  /* Push an id on a stack of the calling thread, and pop it. Any thread may call these at any
   * time before `destroy`, also at the same time as the functions above. */
  void (*push)(counterpoint_torch_session_t*, uint32_t stack, uint64_t id);
  void (*pop)(counterpoint_torch_session_t*, uint32_t stack);
} counterpoint_torch_plugins_t;

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_TORCH_PLUGINS_H_ */
