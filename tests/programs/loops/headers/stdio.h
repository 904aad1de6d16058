/* What the programs of this folder use of a C library, so that clang can compile them for any machine
   without that machine's headers. They are compiled to objects only, and never linked. */
#pragma once
int printf(const char* format, ...);
