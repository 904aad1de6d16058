/* A program with CUDA, without CUDA: it does what CUDA's driver does with CUDA_INJECTION64_PATH and NVTX with
 * NVTX_INJECTION64_PATH. Then it has a CUPTI that is none (cupti.c) make the records of `normal`, or of the scenarios
 * that are named. It ends with 5 if the plugin was there, and with 6 if not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    if (count < 2) return 2;
    void *cupti = dlopen(words[1], RTLD_NOW);
    if (cupti == NULL) return 3;
    const char *file = getenv("CUDA_INJECTION64_PATH");
    void *injected = file != NULL ? dlopen(file, RTLD_NOW) : NULL;
    if (injected != NULL) {
        int (*initialize)(void) = (int (*)(void))(size_t)dlsym(injected, "InitializeInjection");
        if (initialize == NULL || initialize() != 1) return 4;
    }
    file = getenv("NVTX_INJECTION64_PATH");
    void *ranges = file != NULL ? dlopen(file, RTLD_NOW) : NULL;
    if (ranges != NULL) {
        int (*initialize)(const void *) = (int (*)(const void *))(size_t)dlsym(ranges, "InitializeInjectionNvtx2");
        if (initialize == NULL || initialize("table") != 1) return 7;
    }
    int (*run)(const char *) = (int (*)(const char *))(size_t)dlsym(cupti, "double_run");
    int code = count == 2 ? run("normal") : 0;
    for (int i = 2; i < count; i++) code |= run(words[i]);
    puts("done");
    return code == 0 ? 5 : 6;
}
