/* The connection between PyTorch and libcounterpoint.so in one process.
 *
 * PyTorch has no C interface for profilers. A small shared object, the *shim*, is compiled on the
 * user's machine against the headers of the installed PyTorch. It contains what needs PyTorch's C++
 * ABI and nothing else; everything else is in libcounterpoint.so and is called through tables of C
 * functions.
 *
 *     PyTorch  <-- C++ -->  shim  <-- tables of C functions -->  libcounterpoint.so
 *                            ^                                          ^
 *                            +---- counterpoint.torch._load (Python) ---+
 *
 * The bridge has parts that do not know each other. The part called PART consists of
 *
 *   counterpoint/torch_PART.h        its table, which only this part reads and extends
 *   _shim/PART.cpp                   its half in the shim
 *   crates/agent/src/adapters/torch/PART.rs    its half in libcounterpoint.so
 *   counterpoint_torch_PART          the table, a symbol of libcounterpoint.so
 *   counterpoint_torch_PART_begin    a function of the shim, of the type below
 *
 * A part that a library or a shim does not have is left out; the symbol is then missing.
 * Each table begins with its size and its version, both uint32_t. Later versions add fields at the
 * end and change none, so a shim works with a newer library. It refuses an older one.
 */
#ifndef COUNTERPOINT_TORCH_H_
#define COUNTERPOINT_TORCH_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  COUNTERPOINT_TORCH_BEGAN = 0,   /* the part is connected; also if it was connected before */
  COUNTERPOINT_TORCH_OLD = -1,    /* the table lacks fields that this shim needs */
  COUNTERPOINT_TORCH_FAILED = -2  /* `why` says what failed */
};

/* Connects a part. `why` has room for `capacity` bytes, and receives a C string if the result is
 * COUNTERPOINT_TORCH_FAILED. It throws nothing. Python calls it with the lock of the interpreter
 * released. */
typedef int32_t (*counterpoint_torch_begin_t)(const void* table, char* why, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_TORCH_H_ */
