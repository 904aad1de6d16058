/* The minimal code that reads hardware counters without the kernel, for comparison with the
 * number of instructions of ours: the loop from the comments in include/uapi/linux/perf_event.h,
 * with a register per counter, because AArch64 requires it. There is no error handling: if a
 * counter is not on the CPU, only its offset is returned. */
#include <linux/perf_event.h>
#include <stdint.h>

#define BARRIER() __asm__ volatile("" ::: "memory")
#define REGISTER(name)                                                                             \
    ({                                                                                             \
        uint64_t value_;                                                                           \
        __asm__ volatile("mrs %0, " #name : "=r"(value_));                                         \
        value_;                                                                                    \
    })

static inline uint64_t counter(uint32_t index)
{
    switch (index) {
    case 1: return REGISTER(pmevcntr0_el0);
    case 2: return REGISTER(pmevcntr1_el0);
    case 3: return REGISTER(pmevcntr2_el0);
    case 4: return REGISTER(pmevcntr3_el0);
    case 5: return REGISTER(pmevcntr4_el0);
    case 6: return REGISTER(pmevcntr5_el0);
    case 32: return REGISTER(pmccntr_el0);
    default: return 0;
    }
}

static inline uint64_t value(const volatile struct perf_event_mmap_page *page)
{
    uint64_t count = page->offset;
    uint32_t index = page->index;
    if (page->cap_user_rdpmc && index) {
        uint16_t width = page->pmc_width;
        int64_t pmc = (int64_t)(counter(index) << (64 - width));
        count += (uint64_t)(pmc >> (64 - width));
    }
    return count;
}

/* Returns the accumulated count of one counter, without times. */
uint64_t pmu_vm_c_value(const volatile struct perf_event_mmap_page *page)
{
    uint32_t lock;
    uint64_t count;
    do {
        lock = page->lock;
        BARRIER();
        count = value(page);
        BARRIER();
    } while (page->lock != lock);
    return count;
}

/* Reads `n` counters, without times. */
void pmu_vm_c_values(const volatile struct perf_event_mmap_page *const *pages, uint64_t n,
                     uint64_t *out)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = pmu_vm_c_value(pages[i]);
}

/* Writes the words of a group read by the kernel: n, enabled, running, and the values, without
 * the ids. The times are the leader's current times. */
void pmu_vm_c_group(const volatile struct perf_event_mmap_page *const *pages, uint64_t n,
                    uint64_t *out)
{
    const volatile struct perf_event_mmap_page *leader = pages[0];
    uint32_t lock;
    uint64_t enabled, running;
    do {
        lock = leader->lock;
        BARRIER();
        enabled = leader->time_enabled;
        running = leader->time_running;
        if (leader->cap_user_time) {
            uint64_t ticks = REGISTER(cntvct_el0);
            if (leader->cap_user_time_short)
                ticks = leader->time_cycles + ((ticks - leader->time_cycles) & leader->time_mask);
            uint16_t shift = leader->time_shift;
            uint64_t whole = ticks >> shift, rest = ticks & (((uint64_t)1 << shift) - 1);
            uint64_t delta = leader->time_offset + whole * leader->time_mult +
                             ((rest * leader->time_mult) >> shift);
            enabled += delta;
            running += delta;
        }
        out[3] = value(leader);
        BARRIER();
    } while (leader->lock != lock);
    out[0] = n;
    out[1] = enabled;
    out[2] = running;
    for (uint64_t i = 1; i < n; i++)
        out[3 + 2 * i] = pmu_vm_c_value(pages[i]);
}

/* These functions make a pair of readings, and return the sum of the differences. */
uint64_t pmu_vm_c_values_pair(const volatile struct perf_event_mmap_page *const *pages, uint64_t n)
{
    uint64_t begin[8], end[8], sum = 0;
    pmu_vm_c_values(pages, n, begin);
    pmu_vm_c_values(pages, n, end);
    for (uint64_t i = 0; i < n; i++)
        sum += end[i] - begin[i];
    return sum;
}

uint64_t pmu_vm_c_group_pair(const volatile struct perf_event_mmap_page *const *pages, uint64_t n)
{
    uint64_t begin[24], end[24], sum = 0;
    pmu_vm_c_group(pages, n, begin);
    pmu_vm_c_group(pages, n, end);
    for (uint64_t i = 0; i < n; i++)
        sum += end[3 + 2 * i] - begin[3 + 2 * i];
    return sum;
}
