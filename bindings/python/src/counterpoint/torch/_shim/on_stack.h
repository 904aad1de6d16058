/* Finds out whether an object is on the stack of the calling thread. */
#ifndef COUNTERPOINT_TORCH_ON_STACK_H_
#define COUNTERPOINT_TORCH_ON_STACK_H_

#include <pthread.h>

#include <cstddef>
#include <cstdint>

namespace counterpoint {

/* Returns the address of the first byte above the stack of the calling thread; 0 if that is not known. */
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

/* Number of bytes that the frames of a thread take up at least before it calls an observer: those of
 * PyTorch's dispatcher, and those with which the thread itself began. */
constexpr std::uintptr_t LEAST_FRAMES = 2048;

/* Returns whether an object is on the stack of the calling thread. Most are so close that the end of the stack,
 * which is in thread-local memory of a library, need not be known. */
inline bool is_on_stack(const void* object) {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  const auto at = reinterpret_cast<std::uintptr_t>(object);
  return at - here < LEAST_FRAMES || (at >= here && at < top_of_stack());
}

}  // namespace counterpoint

#endif  // COUNTERPOINT_TORCH_ON_STACK_H_
