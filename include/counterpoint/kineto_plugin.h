/* Kineto's interface for dynamic profiler plugins, as published in Kineto's pull request 1148, in a
 * header that is valid C11 and C++17. Names and layouts are the published ones. So a plugin that
 * was compiled with this header also works in a Kineto host, and one that was compiled with
 * Kineto's header also works in Counterpoint.
 *
 * A plugin is a shared object that exports `KinetoPlugin_register`. A host loads it from a directory
 * (KINETO_PLUGIN_LIB_DIR_PATH) or by name, and calls:
 *
 *     once per process     KinetoPlugin_register, in which the plugin calls registerProfiler
 *     once per profiler    profilerQuery with a null handle: its name, its types of events
 *     for each recording   profilerCreate         when warming up begins
 *                          profilerStart          when recording begins
 *                          profilerStop
 *                          profilerProcessEvents  once, on the thread that called profilerStop
 *                          profilerDestroy
 *
 * Between profilerCreate and profilerDestroy, any thread may push and pop correlation ids, also
 * several threads at once. All other functions are called by one thread at a time.
 *
 * Each function returns 0, or another number if it failed. If profilerCreate fails, the profiler
 * takes no part in this recording. After any other failure, the recording continues.
 *
 * Sizes. The first field of each struct is the number of bytes up to the end of its last field,
 * without padding after it (the UNPADDED_STRUCT_SIZE macros). Later versions of a struct add fields
 * at its end. Use a field only if the size covers it.
 *
 * Memory. No call transfers the ownership of memory: the receiver copies texts and structs during
 * the call. The functions of the interface must stay valid until the process ends, and a host does
 * not unload a plugin that has registered. A trace builder is valid only during
 * profilerProcessEvents.
 *
 * Times are nanoseconds since 1970-01-01 UTC. Texts are UTF-8 and end with a zero byte.
 */
#ifndef COUNTERPOINT_KINETO_PLUGIN_H_
#define COUNTERPOINT_KINETO_PLUGIN_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define KINETO_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define KINETO_PLUGIN_EXPORT
#endif

#define KINETO_PLUGIN_LIB_DIR_PATH_ENV_VARIABLE "KINETO_PLUGIN_LIB_DIR_PATH"

#define KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(type, last) \
  (offsetof(type, last) + sizeof(((type*)0)->last))

#ifdef __cplusplus
extern "C" {
#endif

/* Types of events. Some types are named after one vendor, but have the same meaning on any
 * accelerator. A plugin can also declare types of its own: see kineto_plugin_extension.h. */
typedef enum KinetoPlugin_ProfileEventType {
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_INVALID = 0,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_CPU_OP = 1,               /* an op, on the CPU */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_USER_ANNOTATION = 2,      /* a range that the program marked */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_USER_ANNOTATION = 3,  /* such a range, on the device */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_MEMCPY = 4,           /* a copy, on the device */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_MEMSET = 5,           /* a fill, on the device */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL = 6,    /* a kernel, on the device */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_EXTERNAL_CORRELATION = 7, /* joins an id with an op's */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_CUDA_RUNTIME = 8,         /* a call of a runtime library */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_CUDA_DRIVER = 9,          /* a call of a driver */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_CPU_INSTANT_EVENT = 10,   /* a moment, on the CPU */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_PYTHON_FUNCTION = 11,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_OVERHEAD = 12,            /* time that profiling takes */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_MTIA_RUNTIME = 13,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_MTIA_CCP_EVENTS = 14,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_MTIA_INSIGHT = 15,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_CUDA_SYNC = 16,           /* waiting for the device */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_GLOW_RUNTIME = 17,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_CUDA_PROFILER_RANGE = 18, /* a range with metrics */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_HPU_OP = 19,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_XPU_RUNTIME = 20,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_COLLECTIVE_COMM = 21,     /* a collective operation */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_PM_COUNTER = 22,      /* values of counters at a moment */
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_RUNTIME = 23,
  KINETO_PLUGIN_PROFILE_EVENT_TYPE_PRIVATEUSE1_DRIVER = 24,
  KINETO_PLUGIN_PROFILE_EVENT_NUM_TYPES = 25
} KinetoPlugin_ProfileEventType;

/* The metadata of a counter event contain one entry for each series: the key is the name of the
 * series, and the value is a number. */
typedef struct KinetoPlugin_ProfileEvent {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfileEventType eventType;
  int64_t startTimeUtcNs;
  int64_t endTimeUtcNs; /* of a moment or a counter: as startTimeUtcNs */
  int64_t eventId;      /* the correlation id; Kineto's hosts keep 32 bits of it */
  union {
    int32_t deviceId;
    int32_t processId; /* on the CPU */
  };
  union {
    int32_t resourceId; /* a stream, a queue */
    int32_t threadId;   /* on the CPU */
  };
} KinetoPlugin_ProfileEvent;
#define KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfileEvent, threadId)

typedef enum KinetoPlugin_ProfileEventFlowType {
  KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_INVALID = 0,
  KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_FWD_BWD = 1,       /* forward to backward */
  KINETO_PLUGIN_PROFILE_EVENT_FLOW_TYPE_ASYNC_CPU_GPU = 2, /* launch to device */
  KINETO_PLUGIN_PROFILE_EVENT_NUM_FLOW_TYPES = 3
} KinetoPlugin_ProfileEventFlowType;

/* One end of an arrow between two events. Both ends have the same flow type and id. */
typedef struct KinetoPlugin_ProfileEventFlow {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfileEventFlowType flowType;
  uint32_t flowId; /* not 0 */
  bool isStartPoint;
} KinetoPlugin_ProfileEventFlow;
#define KINETO_PLUGIN_PROFILE_EVENT_FLOW_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfileEventFlow, isStartPoint)

/* The row of a device in a trace viewer. */
typedef struct KinetoPlugin_ProfileDeviceInfo {
  size_t unpaddedStructSize;
  int64_t deviceId;
  int64_t sortIndex; /* lower is higher up */
  const char* pName;
  const char* pLabel;
} KinetoPlugin_ProfileDeviceInfo;
#define KINETO_PLUGIN_PROFILE_DEVICE_INFO_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfileDeviceInfo, pLabel)

/* The row of a stream or thread in a trace viewer. */
typedef struct KinetoPlugin_ProfileResourceInfo {
  size_t unpaddedStructSize;
  union {
    int32_t deviceId;
    int32_t processId;
  };
  union {
    int32_t resourceId;
    int32_t threadId;
  };
  int32_t displayOrder; /* lower is higher up */
  const char* pName;
} KinetoPlugin_ProfileResourceInfo;
#define KINETO_PLUGIN_PROFILE_RESOURCE_INFO_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfileResourceInfo, pName)

typedef struct KinetoPlugin_TraceBuilderHandle KinetoPlugin_TraceBuilderHandle;

/* Receives the events of a plugin. Each function returns 0, or -1 if an argument is null or its
 * size is too small, or if a "last event" function is called before the first event. */
typedef struct KinetoPlugin_TraceBuilder {
  size_t unpaddedStructSize;
  KinetoPlugin_TraceBuilderHandle* pTraceBuilderHandle;
  /* Begins an event. The "last event" functions below add data to it until the next addEvent. */
  int (*addEvent)(KinetoPlugin_TraceBuilderHandle*, const KinetoPlugin_ProfileEvent*);
  int (*setLastEventName)(KinetoPlugin_TraceBuilderHandle*, const char* pName);
  int (*setLastEventFlow)(KinetoPlugin_TraceBuilderHandle*, const KinetoPlugin_ProfileEventFlow*);
  /* Adds a value to the last event. The value is JSON, so a text must include its quotes, and a
   * list its brackets. If a key is used twice, the first value is kept. */
  int (*addLastEventMetadata)(KinetoPlugin_TraceBuilderHandle*, const char* pKey,
                              const char* pValue);
  int (*addDeviceInfo)(KinetoPlugin_TraceBuilderHandle*, const KinetoPlugin_ProfileDeviceInfo*);
  int (*addResourceInfo)(KinetoPlugin_TraceBuilderHandle*,
                         const KinetoPlugin_ProfileResourceInfo*);
} KinetoPlugin_TraceBuilder;
#define KINETO_PLUGIN_TRACE_BUILDER_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_TraceBuilder, addResourceInfo)

/* The plugin's own state for a recording. */
typedef struct KinetoPlugin_ProfilerHandle KinetoPlugin_ProfilerHandle;

typedef struct KinetoPlugin_ProfilerCreate_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle* pProfilerHandle;         /* out */
  KinetoPlugin_ProfileEventType* pEnabledActivityTypes; /* in: what was asked for and is supported */
  size_t enabledActivityTypesMaxLen;                    /* in: how many these are */
} KinetoPlugin_ProfilerCreate_Params;
#define KINETO_PLUGIN_PROFILER_CREATE_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerCreate_Params, enabledActivityTypesMaxLen)

typedef struct KinetoPlugin_ProfilerDestroy_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle* pProfilerHandle;
} KinetoPlugin_ProfilerDestroy_Params;
#define KINETO_PLUGIN_PROFILER_DESTROY_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerDestroy_Params, pProfilerHandle)

/* The arrays belong to the host. The plugin writes at most as many bytes or types as the
 * `MaxLen` field says. The name ends with a zero byte, and the list of types at the first
 * INVALID. */
typedef struct KinetoPlugin_ProfilerQuery_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle* pProfilerHandle; /* null at registration */
  char* pProfilerName;
  size_t profilerNameMaxLen; /* without the zero byte: 31 */
  KinetoPlugin_ProfileEventType* pSupportedActivityTypes;
  size_t supportedActivityTypesMaxLen;
} KinetoPlugin_ProfilerQuery_Params;
#define KINETO_PLUGIN_PROFILER_QUERY_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerQuery_Params, supportedActivityTypesMaxLen)

typedef struct KinetoPlugin_ProfilerStart_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle* pProfilerHandle;
} KinetoPlugin_ProfilerStart_Params;
#define KINETO_PLUGIN_PROFILER_START_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerStart_Params, pProfilerHandle)

typedef struct KinetoPlugin_ProfilerStop_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle* pProfilerHandle;
} KinetoPlugin_ProfilerStop_Params;
#define KINETO_PLUGIN_PROFILER_STOP_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerStop_Params, pProfilerHandle)

typedef struct KinetoPlugin_ProfilerProcessEvents_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle* pProfilerHandle;
  const KinetoPlugin_TraceBuilder* pTraceBuilder;
} KinetoPlugin_ProfilerProcessEvents_Params;
#define KINETO_PLUGIN_PROFILER_PROCESS_EVENTS_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerProcessEvents_Params, pTraceBuilder)

typedef struct KinetoPlugin_ProfilerPushCorrelationId_Params {
  size_t unpaddedStructSize;
  uint64_t correlationId; /* before the handle */
  KinetoPlugin_ProfilerHandle* pProfilerHandle;
} KinetoPlugin_ProfilerPushCorrelationId_Params;
#define KINETO_PLUGIN_PROFILER_PUSH_CORRELATION_ID_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerPushCorrelationId_Params, pProfilerHandle)

typedef struct KinetoPlugin_ProfilerPopCorrelationId_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle* pProfilerHandle;
} KinetoPlugin_ProfilerPopCorrelationId_Params;
#define KINETO_PLUGIN_PROFILER_POP_CORRELATION_ID_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerPopCorrelationId_Params, pProfilerHandle)

typedef struct KinetoPlugin_ProfilerPushUserCorrelationId_Params {
  size_t unpaddedStructSize;
  uint64_t userCorrelationId; /* before the handle */
  KinetoPlugin_ProfilerHandle* pProfilerHandle;
} KinetoPlugin_ProfilerPushUserCorrelationId_Params;
#define KINETO_PLUGIN_PROFILER_PUSH_USER_CORRELATION_ID_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerPushUserCorrelationId_Params, \
                                     pProfilerHandle)

typedef struct KinetoPlugin_ProfilerPopUserCorrelationId_Params {
  size_t unpaddedStructSize;
  KinetoPlugin_ProfilerHandle* pProfilerHandle;
} KinetoPlugin_ProfilerPopUserCorrelationId_Params;
#define KINETO_PLUGIN_PROFILER_POP_USER_CORRELATION_ID_PARAMS_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerPopUserCorrelationId_Params, \
                                     pProfilerHandle)

/* The four functions for correlation ids may be null; all others are required. */
typedef struct KinetoPlugin_ProfilerInterface {
  size_t unpaddedStructSize;
  int (*profilerCreate)(KinetoPlugin_ProfilerCreate_Params*);
  int (*profilerDestroy)(KinetoPlugin_ProfilerDestroy_Params*);
  int (*profilerQuery)(KinetoPlugin_ProfilerQuery_Params*);
  int (*profilerStart)(KinetoPlugin_ProfilerStart_Params*);
  int (*profilerStop)(KinetoPlugin_ProfilerStop_Params*);
  int (*profilerPushCorrelationId)(KinetoPlugin_ProfilerPushCorrelationId_Params*);
  int (*profilerPopCorrelationId)(KinetoPlugin_ProfilerPopCorrelationId_Params*);
  int (*profilerPushUserCorrelationId)(KinetoPlugin_ProfilerPushUserCorrelationId_Params*);
  int (*profilerPopUserCorrelationId)(KinetoPlugin_ProfilerPopUserCorrelationId_Params*);
  int (*profilerProcessEvents)(KinetoPlugin_ProfilerProcessEvents_Params*);
} KinetoPlugin_ProfilerInterface;
#define KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_ProfilerInterface, profilerProcessEvents)

typedef struct KinetoPlugin_RegistryHandle KinetoPlugin_RegistryHandle;

typedef struct KinetoPlugin_Registry {
  size_t unpaddedStructSize;
  KinetoPlugin_RegistryHandle* pRegistryHandle;
  /* Registers a profiler and copies its interface. Call this once for each profiler. */
  int (*registerProfiler)(KinetoPlugin_RegistryHandle*, const KinetoPlugin_ProfilerInterface*);
} KinetoPlugin_Registry;
#define KINETO_PLUGIN_REGISTRY_UNPADDED_STRUCT_SIZE \
  KINETO_PLUGIN_UNPADDED_STRUCT_SIZE(KinetoPlugin_Registry, registerProfiler)

/* Every plugin exports this function. If it does not return 0, none of the plugin's profilers is
 * used. */
KINETO_PLUGIN_EXPORT int KinetoPlugin_register(const KinetoPlugin_Registry* pRegistry);

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_KINETO_PLUGIN_H_ */
