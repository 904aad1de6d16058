/* Counts the instructions of a known loop with PAPI, by Arm's own name and in user mode, PAPI's
 * default. Prints one number for each trip count on its command line. */
#include <papi.h>
#include <stdio.h>
#include <stdlib.h>

/* Two instructions per trip, as in src/loops.rs. */
static __attribute__((noinline)) void spin(unsigned long trips)
{
    __asm__ volatile("cbz %0, 2f\n"
                     "1: subs %0, %0, #1\n"
                     "b.ne 1b\n"
                     "2:"
                     : "+r"(trips)::"cc");
}

static void check(int status, const char *what)
{
    if (status != PAPI_OK) {
        fprintf(stderr, "%s: %s\n", what, PAPI_strerror(status));
        exit(1);
    }
}

int main(int argc, char **argv)
{
    int set = PAPI_NULL;
    int version = PAPI_library_init(PAPI_VER_CURRENT);
    if (version != PAPI_VER_CURRENT) {
        fprintf(stderr, "PAPI_library_init: %d\n", version);
        return 1;
    }
    check(PAPI_create_eventset(&set), "PAPI_create_eventset");
    check(PAPI_add_named_event(set, "INST_RETIRED"), "PAPI_add_named_event INST_RETIRED");
    check(PAPI_start(set), "PAPI_start");
    for (int i = 0; i < argc; i++) {
        /* The round of argument 0, the program's name, is a warm-up. */
        unsigned long trips = strtoul(argv[i], NULL, 10);
        long long begin, end;
        check(PAPI_read(set, &begin), "PAPI_read");
        spin(trips);
        check(PAPI_read(set, &end), "PAPI_read");
        if (i > 0)
            printf("%lld\n", end - begin);
    }
    return 0;
}
