/* See stdio.h. */
#pragma once
#include <stddef.h>
int atoi(const char* text);
long atol(const char* text);
void* calloc(size_t count, size_t size);
void* malloc(size_t size);
void free(void* memory);
