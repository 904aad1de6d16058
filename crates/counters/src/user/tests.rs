//! Tests readings in user mode with simulated pages and processors. Most of the expected values
//! were computed by hand.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::page::{
    CAP_USER_READ, CAP_USER_TIME, CAP_USER_TIME_SHORT, Page, nanoseconds, read_group, sign_extend,
};
use super::pmu::Pmu;
use super::rings::Rings;

/// Counters with constant values, and a clock that stands still. The value for a page's `index` is
/// `counters[index − 1]`.
struct Still {
    counters: [u64; 4],
    ticks: u64,
}

impl Pmu for Still {
    fn counter(&self, index: u32) -> Option<u64> {
        self.counters.get(index as usize - 1).copied()
    }
    fn ticks(&self) -> u64 {
        self.ticks
    }
}

/// Creates a page whose time stands still (`mult` 0), for counter `index`.
fn page(index: u32, width: u16, offset: u64) -> Page {
    let page = Page::default();
    page.index.store(index, Ordering::Relaxed);
    page.pmc_width.store(width, Ordering::Relaxed);
    page.offset.store(offset, Ordering::Relaxed);
    page.capabilities.store(CAP_USER_READ | CAP_USER_TIME, Ordering::Relaxed);
    page
}

/// Returns the block of a reading, or `None` if the kernel must read the group.
fn read<'p>(pages: impl IntoIterator<Item = &'p Page>, pmu: &impl Pmu) -> Option<Vec<u64>> {
    let pages: Vec<&Page> = pages.into_iter().collect();
    let mut block = vec![0; 3 + 2 * pages.len()];
    read_group(|i| pages.get(i).copied(), pmu, &mut block).then_some(block)
}

fn value(page: &Page, counter: u64) -> Option<u64> {
    read([page], &Still { counters: [counter; 4], ticks: 0 }).map(|block| block[3])
}

#[test]
fn sign_extension_at_the_edges_of_every_width() {
    for width in [32u16, 40, 47, 48, 64] {
        let top = 1u64 << (width - 1);
        let all = u64::MAX >> (64 - width);
        assert_eq!(sign_extend(0, width), 0, "{width}");
        assert_eq!(sign_extend(1, width), 1);
        assert_eq!(sign_extend(top - 1, width) as i64, (top - 1) as i64);
        assert_eq!(sign_extend(top, width), 0u64.wrapping_sub(top), "half is negative: {width}");
        assert_eq!(sign_extend(all, width), u64::MAX, "all ones is −1: {width}");
        assert_eq!(sign_extend(all - 1, width) as i64, -2);
        if width < 64 {
            assert_eq!(sign_extend(!all | 5, width), 5);
            assert_eq!(sign_extend(!all | top, width), 0u64.wrapping_sub(top));
        }
    }
}

/// The kernel starts a counter at minus half of its range, and compensates for this start in
/// `offset`.
#[test]
fn a_counter_armed_at_half_its_range_counts_through_every_edge() {
    for width in [32u16, 40, 47, 48, 64] {
        let half = 1u64 << (width - 1);
        let all = u64::MAX >> (64 - width);
        let page = page(1, width, half);
        // These are the values at the start, a little later, before and after the overflow (whose
        // interrupt may be late), and at the last count before the sign would change.
        assert_eq!(value(&page, half), Some(0), "width {width}");
        assert_eq!(value(&page, half + 51), Some(51));
        assert_eq!(value(&page, all), Some(half - 1));
        assert_eq!(value(&page, 0), Some(half));
        assert_eq!(value(&page, 1), Some(half + 1));
        assert_eq!(value(&page, half - 1), Some(all));
    }
    // When a 32-bit counter counted 2.4·10⁹ events (2³¹ + 252,516,352), there was one interrupt,
    // and the offset went from 0x7fffffff to 0xfffffffe (measured).
    let later = page(1, 32, 0x7fff_ffff);
    assert_eq!(value(&later, 0x8000_0001), Some(0));
    let later = page(1, 32, 0xffff_fffe);
    assert_eq!(value(&later, 0x8000_0002), Some(0x8000_0000));
}

#[test]
fn offset_and_counter_wrap_as_the_kernels_64_bits_do() {
    // The sums are −3 + 5, −1 + −1, (2⁶⁴ − 1) + 1, and 2³² + −1.
    assert_eq!(value(&page(1, 48, 3u64.wrapping_neg()), 5), Some(2));
    assert_eq!(value(&page(1, 48, u64::MAX), 0xffff_ffff_ffff), Some(u64::MAX - 1));
    assert_eq!(value(&page(1, 64, u64::MAX), 1), Some(0));
    assert_eq!(value(&page(1, 32, 1 << 32), 0xffff_ffff), Some(0xffff_ffff));
}

#[test]
fn time_is_exact_where_it_fits_and_wraps_where_it_does_not() {
    // At 2.5 GHz a tick is 0.4 ns, which is 429,496,729.6 / 2³⁰. At 25 MHz it is 40 ns, which is 40
    // · 2²⁴ / 2²⁴.
    assert_eq!(nanoseconds(2_500_000_000, 429_496_730, 30), 1_000_000_000);
    assert_eq!(nanoseconds(3, 40 << 24, 24), 120);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..100_000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (ticks, mult) = (random >> (random % 40), random as u32);
        for shift in [0u16, 1, 10, 24, 31, 32] {
            let exact = (u128::from(ticks) * u128::from(mult)) >> shift;
            assert_eq!(nanoseconds(ticks, mult, shift), exact as u64, "{ticks} {mult} {shift}");
        }
    }
}

#[test]
fn enabled_and_running_go_on_from_where_the_page_was_written() {
    let page = page(2, 48, 0);
    page.time_enabled.store(1_000, Ordering::Relaxed);
    page.time_running.store(400, Ordering::Relaxed);
    // A tick is 2 ns. The kernel wrote the page at tick 500, so the offset is −1,000 ns.
    page.time_mult.store(2, Ordering::Relaxed);
    page.time_offset.store(1_000u64.wrapping_neg(), Ordering::Relaxed);
    let now = Still { counters: [0, 7, 0, 0], ticks: 530 };
    assert_eq!(read([&page], &now), Some(vec![0, 1_060, 460, 7, 0]));
    // Now the clock has 32 bits and has wrapped around: from 0xffff_fff0 to 0x10 is 32 ticks.
    page.capabilities.fetch_or(CAP_USER_TIME_SHORT, Ordering::Relaxed);
    page.time_cycles.store(0xffff_fff0, Ordering::Relaxed);
    page.time_mask.store(0xffff_ffff, Ordering::Relaxed);
    page.time_offset.store((2u64 * 0xffff_fff0).wrapping_neg(), Ordering::Relaxed);
    let wrapped = Still { ticks: 0x10, ..now };
    assert_eq!(read([&page], &wrapped), Some(vec![0, 1_064, 464, 7, 0]));
}

#[test]
fn the_kernel_is_asked_whenever_the_page_says_so() {
    let pmu = Still { counters: [1, 2, 3, 4], ticks: 0 };
    let good = || page(1, 48, 10);
    assert_eq!(read([&good()], &pmu).map(|b| b[3]), Some(11));
    // No counter of the processor counts this page's event.
    assert_eq!(read([&page(0, 48, 10)], &pmu), None);
    // There is no counter with this index.
    assert_eq!(read([&page(5, 48, 10)], &pmu), None);
    for lacks in [CAP_USER_READ, CAP_USER_TIME] {
        let page = good();
        page.capabilities.fetch_and(!lacks, Ordering::Relaxed);
        assert!(!page.allows());
        assert_eq!(read([&page], &pmu), None);
    }
    // The kernel must read the whole group if one counter is unreadable, or if there is no counter.
    let block = read([&good(), &page(2, 32, 0), &page(4, 64, 0)], &pmu);
    assert_eq!(block, Some(vec![0, 0, 0, 11, 0, 2, 0, 4, 0]));
    assert_eq!(read([&good(), &page(0, 32, 0), &page(4, 64, 0)], &pmu), None);
    assert_eq!(read([&good(), &page(2, 32, 0), &page(0, 64, 0)], &pmu), None);
    assert_eq!(read([], &pmu), None);
}

/// A processor on which the kernel writes to a page in the middle of a reading.
struct Interrupted<'p> {
    page: &'p Page,
    /// The number of counter reads before the first write. `times` is the number of writes that are
    /// still to come.
    after: Cell<u32>,
    times: Cell<u32>,
    /// The counter's value. Each write decreases it by 100 and increases the offset by 100.
    counter: Cell<u64>,
}

impl Pmu for Interrupted<'_> {
    fn counter(&self, _: u32) -> Option<u64> {
        let shown = self.counter.get();
        if self.times.get() > 0 && self.after.get() == 0 {
            self.times.set(self.times.get() - 1);
            self.page.lock.fetch_add(2, Ordering::Relaxed);
            self.page.offset.fetch_add(100, Ordering::Relaxed);
            self.counter.set(shown.wrapping_sub(100));
        } else {
            self.after.set(self.after.get().saturating_sub(1));
        }
        Some(self.counter.get())
    }
    fn ticks(&self) -> u64 {
        0
    }
}

#[test]
fn a_reading_is_retried_after_a_change_and_given_up_if_changes_do_not_stop() {
    let (leader, member) = (page(1, 48, 1_000), page(2, 48, 1_000));
    let pmu = |page, after, times| Interrupted {
        page,
        after: Cell::new(after),
        times: Cell::new(times),
        counter: Cell::new(5),
    };
    for (of, after) in [(&leader, 0), (&leader, 1), (&member, 1)] {
        for times in [1, 2] {
            let pmu = pmu(of, after, times);
            let block = read([&leader, &member], &pmu).expect("settles");
            let of_changed = if core::ptr::eq(of, &leader) { block[3] } else { block[5] };
            assert_eq!(of_changed, 1_005, "{after} {times}");
            assert_eq!(pmu.times.get(), 0);
            of.offset.store(1_000, Ordering::Relaxed);
        }
    }
    assert_eq!(read([&leader], &pmu(&leader, 0, u32::MAX)), None);
    // With an odd lock, the page looks as if the kernel never finished writing it.
    leader.lock.store(7, Ordering::Relaxed);
    assert_eq!(read([&leader], &pmu(&leader, 0, 0)), None);
}

/// `offset` + counter is always a multiple of three and equals both times, so a torn reading (a mix
/// of two writes) is noticed. Real pages are written on the reader's own CPU. A writer on another
/// CPU can imitate that only where CPUs see each other's stores in order.
#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "the imitation needs ordered stores")]
fn a_page_that_another_thread_writes_is_never_read_torn() {
    struct Shared {
        pages: [Page; 2],
        counter: AtomicU64,
    }
    impl Pmu for &Shared {
        fn counter(&self, _: u32) -> Option<u64> {
            Some(self.counter.load(Ordering::Relaxed))
        }
        fn ticks(&self) -> u64 {
            0
        }
    }
    /// Stops the writer even if an assertion fails.
    struct Stop<'s>(&'s AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let shared = &Shared { pages: [page(1, 48, 0), page(2, 48, 0)], counter: AtomicU64::new(0) };
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let [leader, member] = &shared.pages;
            let mut total = 0u64;
            while !stop.load(Ordering::Relaxed) {
                total += 3;
                // The locks are odd while a field changes, and are written in a seqlock's order.
                leader.lock.fetch_add(1, Ordering::AcqRel);
                member.lock.fetch_add(1, Ordering::AcqRel);
                let counter = total % 1_000;
                shared.counter.store(counter, Ordering::Release);
                for page in &shared.pages {
                    page.offset.store(total - counter, Ordering::Release);
                    page.time_enabled.store(total, Ordering::Release);
                    page.time_running.store(total, Ordering::Release);
                }
                member.lock.fetch_add(1, Ordering::AcqRel);
                leader.lock.fetch_add(1, Ordering::AcqRel);
                for _ in 0..total % 64 {
                    core::hint::spin_loop();
                }
            }
        });
        let _stop = Stop(stop);
        let (mut whole, mut last) = (0, 0);
        let start = std::time::Instant::now();
        while whole < 20_000 || (last < 1_000 && start.elapsed().as_secs() < 20) {
            if let Some(block) = read(&shared.pages, &shared) {
                let [_, enabled, running, value, _, other, _] = block[..] else { unreachable!() };
                assert_eq!([running, value, other], [enabled; 3], "torn");
                assert!(enabled >= last && enabled % 3 == 0);
                last = enabled;
                whole += 1;
            }
        }
        assert!(last > 0, "the page never changed");
    });
}

/// A hypervisor takes the processor for 1,000 ns after the kernel has read the group's time, and a
/// tick is 1 ns. The middle between the ticks around the reading is then 500 ns too early, and
/// readings without the kernel are 500 ns ahead of it.
#[test]
fn a_group_read_from_rings_runs_in_each_interval_even_after_a_late_reading() {
    struct Ticks(Cell<u64>);
    impl Pmu for Ticks {
        fn counter(&self, _: u32) -> Option<u64> {
            None
        }
        fn ticks(&self) -> u64 {
            self.0.get()
        }
    }
    let (page, clock, mut rings) = (Page::default(), Ticks(Cell::new(0)), Rings::default());
    let pages = |i: usize| (i == 0).then_some(&page);
    rings.begin(0, 1 << 32);
    let mut at = |ticks: u64, kernel: Option<(u64, u64)>, events: u64| {
        clock.0.set(ticks);
        page.data_head.fetch_add(8 * events, Ordering::Relaxed);
        let mut block = [0; 5];
        match kernel {
            None => assert!(rings.attempt(0, pages, &clock, &mut block), "at {ticks}"),
            Some((enabled, taken)) => {
                assert!(!rings.attempt(0, pages, &clock, &mut block), "at {ticks}");
                let ask = |block: &mut [u64]| {
                    clock.0.set(ticks + taken);
                    block.copy_from_slice(&[1, enabled, enabled, 40, 7]);
                    40
                };
                assert_eq!(rings.ask(0, pages, &clock, ask, &mut block), 40);
            }
        }
        assert_eq!(block[1], block[2], "a group of software counters runs while it is enabled");
        (block[1], block[3])
    };
    assert_eq!(at(0, Some((100, 1_000)), 0), (100, 40));
    assert_eq!(at(1_010, None, 3), (610, 43));
    // The thread was away and came back. The kernel says how long it has run so far: less than
    // the previous reading said.
    page.lock.fetch_add(2, Ordering::Relaxed);
    assert_eq!(at(1_020, Some((120, 0)), 0), (611, 40));
    assert_eq!(at(1_030, None, 0), (612, 40));
    assert_eq!(at(1_040, None, 1), (613, 41));
    assert_eq!(at(2_020, None, 0), (1_120, 41));
    // In another thread, the kernel's time stands still.
    page.lock.fetch_add(2, Ordering::Relaxed);
    assert_eq!(at(3_000, Some((1_200, 0)), 0), (1_200, 40));
    page.lock.fetch_add(2, Ordering::Relaxed);
    assert_eq!(at(4_000, Some((1_200, 0)), 0), (1_200, 40));
}
