/* Prints the sizes and offsets of the plugin interface's structs, as this compiler lays them
 * out. */
#include <stdio.h>

#include "counterpoint/kineto_plugin_extension.h"

#define SIZE(name, unpadded) \
  printf(#name " %zu/%zu\n", sizeof(KinetoPlugin_##name), (size_t)(unpadded))
#define OFFSET(name, field) \
  printf(#name "." #field " %zu\n", offsetof(KinetoPlugin_##name, field))
#define OWN(name, unpadded) \
  printf(#name " %zu/%zu\n", sizeof(CounterpointPlugin_##name), (size_t)(unpadded))

int main(void) {
  SIZE(ProfileEvent, KINETO_PLUGIN_PROFILE_EVENT_UNPADDED_STRUCT_SIZE);
  OFFSET(ProfileEvent, eventType);
  OFFSET(ProfileEvent, startTimeUtcNs);
  OFFSET(ProfileEvent, endTimeUtcNs);
  OFFSET(ProfileEvent, eventId);
  OFFSET(ProfileEvent, processId);
  OFFSET(ProfileEvent, threadId);
  SIZE(ProfileEventFlow, KINETO_PLUGIN_PROFILE_EVENT_FLOW_UNPADDED_STRUCT_SIZE);
  OFFSET(ProfileEventFlow, flowType);
  OFFSET(ProfileEventFlow, flowId);
  OFFSET(ProfileEventFlow, isStartPoint);
  SIZE(ProfileDeviceInfo, KINETO_PLUGIN_PROFILE_DEVICE_INFO_UNPADDED_STRUCT_SIZE);
  OFFSET(ProfileDeviceInfo, pLabel);
  SIZE(ProfileResourceInfo, KINETO_PLUGIN_PROFILE_RESOURCE_INFO_UNPADDED_STRUCT_SIZE);
  OFFSET(ProfileResourceInfo, displayOrder);
  OFFSET(ProfileResourceInfo, pName);
  SIZE(TraceBuilder, KINETO_PLUGIN_TRACE_BUILDER_UNPADDED_STRUCT_SIZE);
  OFFSET(TraceBuilder, addResourceInfo);
  SIZE(ProfilerCreate_Params, KINETO_PLUGIN_PROFILER_CREATE_PARAMS_UNPADDED_STRUCT_SIZE);
  OFFSET(ProfilerCreate_Params, pEnabledActivityTypes);
  SIZE(ProfilerStop_Params, KINETO_PLUGIN_PROFILER_STOP_PARAMS_UNPADDED_STRUCT_SIZE);
  SIZE(ProfilerQuery_Params, KINETO_PLUGIN_PROFILER_QUERY_PARAMS_UNPADDED_STRUCT_SIZE);
  OFFSET(ProfilerQuery_Params, pSupportedActivityTypes);
  SIZE(ProfilerProcessEvents_Params,
       KINETO_PLUGIN_PROFILER_PROCESS_EVENTS_PARAMS_UNPADDED_STRUCT_SIZE);
  SIZE(ProfilerPushCorrelationId_Params,
       KINETO_PLUGIN_PROFILER_PUSH_CORRELATION_ID_PARAMS_UNPADDED_STRUCT_SIZE);
  OFFSET(ProfilerPushCorrelationId_Params, correlationId);
  OFFSET(ProfilerPushCorrelationId_Params, pProfilerHandle);
  SIZE(ProfilerInterface, KINETO_PLUGIN_PROFILER_INTERFACE_UNPADDED_STRUCT_SIZE);
  OFFSET(ProfilerInterface, profilerPushCorrelationId);
  OFFSET(ProfilerInterface, profilerProcessEvents);
  SIZE(Registry, KINETO_PLUGIN_REGISTRY_UNPADDED_STRUCT_SIZE);
  OWN(Counter, COUNTERPOINT_PLUGIN_COUNTER_UNPADDED_STRUCT_SIZE);
  OWN(Host, COUNTERPOINT_PLUGIN_HOST_UNPADDED_STRUCT_SIZE);
  OWN(Configure_Params, COUNTERPOINT_PLUGIN_CONFIGURE_PARAMS_UNPADDED_STRUCT_SIZE);
  OWN(Toggle_Params, COUNTERPOINT_PLUGIN_TOGGLE_PARAMS_UNPADDED_STRUCT_SIZE);
  OWN(Extension, COUNTERPOINT_PLUGIN_EXTENSION_UNPADDED_STRUCT_SIZE);
  return 0;
}
