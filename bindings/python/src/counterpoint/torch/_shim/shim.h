/* Definitions that all parts of the shim use. See counterpoint/torch.h.
 *
 * The .cpp files of this folder are compiled on the user's machine with the headers of the
 * installed PyTorch, and linked into one shared object. COUNTERPOINT_TORCH_VERSION is the version
 * of that PyTorch, as 10000 * major + 100 * minor + patch: 21500 for 2.15.0.
 */
#ifndef COUNTERPOINT_TORCH_SHIM_H_
#define COUNTERPOINT_TORCH_SHIM_H_

#include <cstdint>
#include <cstdio>
#include <exception>

#include "counterpoint/torch.h"

#define COUNTERPOINT_TORCH_EXPORT extern "C" __attribute__((visibility("default")))

namespace counterpoint {

/* The first field of a table is its size. */
inline bool covers(const void* table, std::size_t needed) {
  return table != nullptr && *static_cast<const std::uint32_t*>(table) >= needed;
}

/* Runs the body of a `begin` function, which returns one of the results of counterpoint/torch.h.
 * The text of an exception goes to `why`. */
template <typename Body>
std::int32_t begin(char* why, std::size_t capacity, Body body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    std::snprintf(why, capacity, "%s", error.what());
  } catch (...) {
    std::snprintf(why, capacity, "an exception of an unknown type");
  }
  return COUNTERPOINT_TORCH_FAILED;
}

}  // namespace counterpoint

#endif  // COUNTERPOINT_TORCH_SHIM_H_
