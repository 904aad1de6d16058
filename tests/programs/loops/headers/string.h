/* See stdio.h. */
#pragma once
#include <stddef.h>
void* memcpy(void* to, const void* from, size_t size);
void* memset(void* to, int byte, size_t size);
