/* The functions of a C library that the programs in the folder above use. With these headers, clang
   can compile the programs for any machine without that machine's own headers. The programs are
   only compiled to objects, and never linked. */
#pragma once
int printf(const char* format, ...);
