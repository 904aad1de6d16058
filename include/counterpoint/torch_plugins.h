/* Profiler plugins inside PyTorch's own profiler: what the shim asks of libcounterpoint.so.
 *
 * libcounterpoint.so loads the plugins of KINETO_PLUGIN_LIB_DIR_PATH and drives them. The shim
 * registers one child profiler with PyTorch for each profiler of a plugin, and passes every call on.
 * See torch.h for what all tables have in common.
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

/* Which stack of ids a call is about. */
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

/* One event of a plugin. All texts are safe for PyTorch's writer, which escapes almost nothing:
 * names and keys are printable ASCII without quotation marks and backslashes, and JSON values have
 * no escapes. */
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

/* Receives the events of a session, during the call of `process`. The functions are called one at a
 * time on the calling thread, must not throw, and copy what they keep. */
typedef struct counterpoint_torch_sink {
  uint32_t size;
  void* handle;
  void (*event)(void* handle, const counterpoint_torch_event_t* event);
  /* The row of a device; comes before its resources. */
  void (*device)(void* handle, int64_t device, int64_t sort_index, const char* name,
                 const char* label);
  /* The row of a stream or of a thread. */
  void (*resource)(void* handle, int64_t device, int64_t resource, int64_t order,
                   const char* name);
} counterpoint_torch_sink_t;

/* Switches of PyTorch's profiler in the environment. */
enum {
  COUNTERPOINT_TORCH_NO_CUPTI = 1 /* KINETO_DISABLE_CUPTI: not to use CUPTI */
};

typedef struct counterpoint_torch_plugins {
  uint32_t size;    /* bytes of this table */
  uint32_t version; /* COUNTERPOINT_TORCH_PLUGINS_VERSION */

  /* Writes a line for the user. */
  void (*say)(const char* line);
  /* Returns the switches that are set: bits COUNTERPOINT_TORCH_NO_... */
  uint32_t (*switches)(void);
  /* Loads the plugins, at the first call. Returns the number of profilers that can be used. */
  uint32_t (*load)(void);
  /* Returns the name of a profiler, below the number that `load` returned; safe as all texts are. Lives as
   * long as the process. */
  const char* (*name)(uint32_t profiler);
  /* Begins a recording. `kinds`: the published event types that PyTorch requests. `configuration`:
   * the lines KEY=VALUE that PyTorch has for this recording. Null: the plugin does not take part. */
  counterpoint_torch_session_t* (*create)(uint32_t profiler, const uint32_t* kinds, size_t count,
                                          const char* configuration);
  /* Returns bits: COUNTERPOINT_TORCH_STACK_x is set if the plugin wants to know the ids of that stack. */
  uint32_t (*stacks)(const counterpoint_torch_session_t*);
  /* These follow one another, on any thread: start, stop, process. They return 0, or -1: the plugin failed, and
   * the recording continues. `toggle` pauses (0) and resumes (1) between start and stop. */
  int32_t (*start)(counterpoint_torch_session_t*);
  int32_t (*toggle)(counterpoint_torch_session_t*, uint32_t enabled);
  int32_t (*stop)(counterpoint_torch_session_t*);
  int32_t (*process)(counterpoint_torch_session_t*, const counterpoint_torch_sink_t*);
  /* Ends the recording, after which the session must not be used. */
  void (*destroy)(counterpoint_torch_session_t*);
  /* Any thread may call these at any time before destroy, also at the same time as the functions above. */
  void (*push)(counterpoint_torch_session_t*, uint32_t stack, uint64_t id);
  void (*pop)(counterpoint_torch_session_t*, uint32_t stack);
} counterpoint_torch_plugins_t;

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_TORCH_PLUGINS_H_ */
