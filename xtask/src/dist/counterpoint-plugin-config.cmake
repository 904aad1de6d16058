# The target counterpoint::plugin: headers of the interface for profiler plugins. Nothing is linked.
get_filename_component(_counterpoint_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET counterpoint::plugin)
  add_library(counterpoint::plugin INTERFACE IMPORTED)
  set_target_properties(counterpoint::plugin PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_counterpoint_prefix}/include")
endif()
unset(_counterpoint_prefix)
