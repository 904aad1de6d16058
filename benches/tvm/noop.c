// An instrument for TVM's virtual machine that does nothing. It shows the least cost of any native
// instrument.
#include <stdint.h>

int __tvm_ffi_noop(void* self, const void* arguments, int32_t count, void* result) {
  (void)self, (void)arguments, (void)count, (void)result;
  return 0;
}
