/* All parts of the shim use these definitions. See counterpoint/torch.h.
 *
 * Every .cpp file of this folder is compiled on the user's machine against the headers of the
 * installed PyTorch, and all are linked into one shared object. COUNTERPOINT_TORCH_VERSION is
 * 10000 * major + 100 * minor + patch of that PyTorch: 21500 for 2.15.0.
 */
#ifndef COUNTERPOINT_TORCH_SHIM_H_
#define COUNTERPOINT_TORCH_SHIM_H_

#include <cstdint>
#include <cstdio>
#include <exception>

#include "counterpoint/torch.h"

#define COUNTERPOINT_TORCH_EXPORT extern "C" __attribute__((visibility("default")))

namespace counterpoint {

/* Returns whether a table, which begins with its size, has at least `needed` bytes. */
inline bool covers(const void* table, std::size_t needed) {
  return table != nullptr && *static_cast<const std::uint32_t*>(table) >= needed;
}

/* Runs the body of a `begin` function, and turns what it throws into a result. The body returns
 * one of the results of counterpoint/torch.h. */
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
