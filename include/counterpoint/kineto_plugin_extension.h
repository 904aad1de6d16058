/* Counterpoint's additions to Kineto's interface for profiler plugins.
 *
 * A plugin may export `CounterpointPlugin_extend` in addition to `KinetoPlugin_register`. A host
 * that supports these additions calls it once, before `KinetoPlugin_register`. Other hosts use the
 * plugin without the additions. As in kineto_plugin.h, the size of a struct says which functions
 * exist.
 *
 *     for each recording   profilerCreate
 *                          configure              the text of --plugin-config, warm-up, limit
 *                          profilerStart
 *                          toggle(off), toggle(on)   as often as the user pauses
 *                          flush                  as often as the host likes, for long recordings,
 *                                                 and when the plugin asks for it (requestFlush)
 *                          profilerStop, profilerProcessEvents, profilerDestroy
 */
#ifndef COUNTERPOINT_KINETO_PLUGIN_EXTENSION_H_
#define COUNTERPOINT_KINETO_PLUGIN_EXTENSION_H_

#include "kineto_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Version 2 added requestFlush, version 3 addMissing. */
#define COUNTERPOINT_PLUGIN_EXTENSION_VERSION 3

/* The smallest number of an event type that a plugin declares. The host assigns these numbers. */
#define COUNTERPOINT_PLUGIN_FIRST_OWN_TYPE 1024

/* One value of a counter track. */
typedef struct CounterpointPlugin_Counter {
  size_t unpaddedStructSize;
  int64_t timeUtcNs;
  int32_t deviceId;   /* -1: of the machine, not of a device */
  int32_t reserved;   /* 0 */
  const char* pTrack; /* "memory bandwidth" */
  const char* pSeries;/* "read" */
  const char* pUnit;  /* "GB/s"; null or "": none */
  double value;       /* finite */
} CounterpointPlugin_Counter;
#define COUNTERPOINT_PLUGIN_COUNTER_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(CounterpointPlugin_Counter, value)

typedef enum CounterpointPlugin_LogLevel {
  COUNTERPOINT_PLUGIN_LOG_VERBOSE = 0, /* levels of KINETO_LOG_LEVEL */
  COUNTERPOINT_PLUGIN_LOG_INFO = 1,
  COUNTERPOINT_PLUGIN_LOG_WARNING = 2,
  COUNTERPOINT_PLUGIN_LOG_STAGE = 3,
  COUNTERPOINT_PLUGIN_LOG_ERROR = 4
} CounterpointPlugin_LogLevel;

/* Kinds of data that can be missing from a recording although the plugin works correctly. */
typedef enum CounterpointPlugin_Missing {
  /* Events that did not fit into maxBufferBytes. They count as the loss plugin_buffer_full. */
  COUNTERPOINT_PLUGIN_MISSING_OVERFLOW = 1,
  /* Commands that the program sent to a device and whose times are unknown: the command failed,
   * had not ended, or the device reported no times. They count as the loss device_work_untimed. */
  COUNTERPOINT_PLUGIN_MISSING_TIMES = 2,
  /* Work of a device that is recorded without its counters, because they could not be read. It
   * counts as the loss counter_read_failed. */
  COUNTERPOINT_PLUGIN_MISSING_COUNTERS = 3
} CounterpointPlugin_Missing;

typedef struct CounterpointPlugin_HostHandle CounterpointPlugin_HostHandle;

/* The functions of the host. This struct is valid until the process ends. */
typedef struct CounterpointPlugin_Host {
  size_t unpaddedStructSize;
  uint32_t version; /* COUNTERPOINT_PLUGIN_EXTENSION_VERSION */
  CounterpointPlugin_HostHandle* pHostHandle;
  /* Declares an event type by name and returns its number, which profilerQuery may list and
   * addEvent may use. The same name always gets the same number. `base` is the most similar
   * published type, for views that do not know the name. Returns 0 if the name is null or empty,
   * or if no numbers are left. Call this in CounterpointPlugin_extend or KinetoPlugin_register. */
  uint32_t (*declareType)(CounterpointPlugin_HostHandle*, const char* pName,
                          KinetoPlugin_ProfileEventType base);
  /* Adds a value to a counter track. Returns 0, or -1 if the struct is null or too small, or if
   * the value is not finite. */
  int (*addCounter)(KinetoPlugin_TraceBuilderHandle*, const CounterpointPlugin_Counter*);
  /* Sets the name of a thread of the program. Returns 0, or -1 if a pointer is null. */
  int (*setThreadName)(KinetoPlugin_TraceBuilderHandle*, int32_t processId, int32_t threadId,
                       const char* pName);
  /* Writes a line for the user. May be called from any thread. */
  void (*log)(CounterpointPlugin_HostHandle*, CounterpointPlugin_LogLevel, const char* pText);
  /* Since version 2; check that unpaddedStructSize covers it. Asks the host to take the plugin's
   * complete events now. The host calls `flush` on the calling thread before this function
   * returns. The events that `flush` hands over are kept even if the process crashes later. Call
   * this only on threads that the plugin itself started, and without holding a lock that flush
   * or profilerStop takes. Returns 0 if the events were taken. Returns -1 if the host is in
   * another call of the plugin, or takes events only at the end. */
  int (*requestFlush)(CounterpointPlugin_HostHandle*, KinetoPlugin_ProfilerHandle*);
  /* Since version 3. Adds `count` to the missing data of this kind. An error code of
   * profilerProcessEvents would mean instead that the plugin failed. Returns 0, or -1 if the
   * kind is not a value of the enumeration. */
  int (*addMissing)(KinetoPlugin_TraceBuilderHandle*, CounterpointPlugin_Missing, uint64_t count);
} CounterpointPlugin_Host;
#define COUNTERPOINT_PLUGIN_HOST_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(CounterpointPlugin_Host, addMissing)

typedef struct CounterpointPlugin_Configure_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle* pProfilerHandle;
  const char* pConfiguration; /* the user's text; "" if there is none */
  int64_t warmupNs;           /* time from create to start, as planned; 0: none */
  uint64_t maxBufferBytes;    /* what the plugin may keep; 0: no limit was given */
} CounterpointPlugin_Configure_Params;
#define COUNTERPOINT_PLUGIN_CONFIGURE_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(CounterpointPlugin_Configure_Params, maxBufferBytes)

typedef struct CounterpointPlugin_Toggle_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle* pProfilerHandle;
  uint32_t enabled; /* 0: collect nothing until the next call */
} CounterpointPlugin_Toggle_Params;
#define COUNTERPOINT_PLUGIN_TOGGLE_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(CounterpointPlugin_Toggle_Params, enabled)

/* The host passes this struct filled with zeros, and the plugin fills it in. All functions may
 * be null. They return 0, or another number if they failed. If one fails, the recording
 * continues. */
typedef struct CounterpointPlugin_Extension {
  size_t unpaddedStructSize; /* set by the host: what it knows; the plugin fills in no more */
  int (*configure)(const CounterpointPlugin_Configure_Params*);
  int (*toggle)(const CounterpointPlugin_Toggle_Params*);
  /* Hands over the complete events during the recording, and removes them from the plugin. */
  int (*flush)(KinetoPlugin_ProfilerProcessEvents_Params*);
} CounterpointPlugin_Extension;
#define COUNTERPOINT_PLUGIN_EXTENSION_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(CounterpointPlugin_Extension, flush)

/* A plugin exports this function to use the additions. If it does not return 0, the host does
 * not use them. */
KINETO_PLUGIN_EXPORT int CounterpointPlugin_extend(const CounterpointPlugin_Host* pHost,
                                                   CounterpointPlugin_Extension* pExtension);

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_KINETO_PLUGIN_EXTENSION_H_ */
