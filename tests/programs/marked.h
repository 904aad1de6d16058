// The argument values by which `interposer.c` recognises the calls of `marked.c`.
#ifndef COUNTERPOINT_TESTS_MARKED_H_
#define COUNTERPOINT_TESTS_MARKED_H_

#define MARKED_BYTES 0x123000
#define MARKED_NAME "counterpoint_marked_"

#endif  // COUNTERPOINT_TESTS_MARKED_H_
