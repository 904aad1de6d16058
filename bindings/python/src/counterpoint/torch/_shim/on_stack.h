/* Determines whether an object is on the stack of the calling thread. */
#ifndef COUNTERPOINT_TORCH_ON_STACK_H_
#define COUNTERPOINT_TORCH_ON_STACK_H_

#include <pthread.h>

#include <cstddef>
#include <cstdint>

namespace counterpoint {

/* Returns the first address above the stack of the calling thread, or 0 if it is not known. */
__attribute__((noinline)) inline std::uintptr_t top_of_stack() {
  thread_local std::uintptr_t top = 0;
  if (top == 0) {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
    void* bottom = nullptr;
    std::size_t bytes = 0;
    pthread_attr_getstack(&attributes, &bottom, &bytes);
    pthread_attr_destroy(&attributes);
    top = reinterpret_cast<std::uintptr_t>(bottom) + bytes;
  }
  return top;
}

/* A lower bound for the bytes of stack below an observer: PyTorch's dispatcher, and the frames
 * with which the thread began. */
constexpr std::uintptr_t LEAST_FRAMES = 2048;

/* Most objects are so close to the current frame that the first comparison is enough. The lookup
 * of the top of the stack in thread-local memory is slower. */
inline bool is_on_stack(const void* object) {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  const auto at = reinterpret_cast<std::uintptr_t>(object);
  return at - here < LEAST_FRAMES || (at >= here && at < top_of_stack());
}

}  // namespace counterpoint

#endif  // COUNTERPOINT_TORCH_ON_STACK_H_
