//! Computes the cost of recording one thread, and how many of its calls may be timed in a run with
//! a budget (the part of the thread's processor time that recording may take).
//!
//! ```text
//!  measured in place    cost of a timed call, of one with counters, of a clock record, of a flush
//!  every millisecond    processor time ─► price so far ─► share of the next calls' time
//!  at each drawn call   share, mean duration of the export so far ─► period
//! ```
//!
//! Each export (recorded function) pays for itself: timing may take `share` of the time of the
//! export's calls. So one in *period* of its calls is timed, where the period is cost / (share ·
//! mean duration). The share is a part of the budget ([`MARGIN`]) minus two amounts, but not less
//! than a minimum ([`LEAST`]). One is the cost of everything that is not chosen at random (calls
//! that are only counted, clock records, flushes). The other is a fraction of the debt. The debt is
//! the time by which recording has exceeded this part of the budget up to now, for example because
//! attaching the thread takes long. The share depends only on the past, so the estimates from the
//! timed calls stay unbiased.
//!
//! All costs are in ticks of the run's clock. They are estimates. The recorder measures its own
//! time, including those of its cache misses that occur between its clock reads. It does not
//! measure the time that the program loses because its data was displaced from the caches. For this
//! reason, a part of the budget is left unused ([`MARGIN`]).

/// The first calls of an export (recorded function) on a thread, up to this number, are all timed,
/// unless the budget is 0.
pub const FIRST_TIMED: u64 = 8;
/// In the first calls of an export on a thread, up to this number, counters are read, unless the
/// budget is 0.
pub const FIRST_COUNTED: u64 = 2;
/// The longest period: on average, at least one call in this many is drawn (chosen to be timed).
pub const LONGEST: u32 = 1 << 24;
/// The part of the budget that the account tries to use.
const MARGIN: f64 = 0.8;
/// At least this part of the budget may be spent, so that some calls are timed and some runs are
/// watched even on a thread that has exceeded the budget.
const LEAST: f64 = 1.0 / 32.0;
/// The part of the remaining budget (`Account::left`) that is used to watch runs of models. In a
/// watched run, the host announces each call ([`super::watch`]).
const WATCHING: f64 = 0.5;
/// At least this part of the time of a model's runs is used to watch them.
const LEAST_WATCHING: f64 = 1e-4;
/// The longest period for runs of models: on average, at least one run in this many is watched.
pub const MOST_RUNS: u32 = 1 << 14;
/// The shortest processor time within which a debt is paid back. Usually, the time for paying back
/// a debt is a quarter of the processor time that the thread has used up to now.
const SHORTEST_HORIZON_NS: f64 = 20e6;
const WEIGHT: f64 = 1.0 / 16.0;

/// A bracket (the recorder's work before and after a call) is cold if its code and data are not in
/// the caches. The recorder can measure only a part of the additional cost of a cold bracket. This
/// is the other part, as a multiple of the measured one. The other part consists of mispredicted
/// jumps before the first clock read and after the last one, and of cache lines that the program
/// must fetch again. The multiple was measured with a transformer (134 calls in 200 µs). If one
/// call in nine was timed, a timed call cost 274 ns, of which the recorder measured 93 ns. If three
/// in four were timed, it cost 67 ns, of which the recorder measured 42 ns. A warm bracket takes 35
/// ns.
const UNSEEN: f64 = 3.0;

/// A cost that is measured repeatedly: its running mean, and its smallest value, which is regarded
/// as the cost of a warm bracket.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    mean: f64,
    least: f64,
}

impl Cost {
    pub const fn new(ticks: f64) -> Self {
        Self { mean: ticks, least: f64::INFINITY }
    }

    /// Returns the cost in ticks, including the part that cannot be measured.
    #[inline(always)]
    pub fn ticks(self) -> f64 {
        self.mean + UNSEEN * (self.mean - self.least).max(0.0)
    }

    /// Adds a measurement. The recorder may have been interrupted during it, so it counts as at
    /// most four times the mean plus 16 ticks.
    #[inline(always)]
    pub fn measured(&mut self, ticks: u64) {
        let bounded = (ticks as f64).min(4.0 * self.mean + 16.0);
        self.least = self.least.min(bounded);
        self.mean += (bounded - self.mean) * WEIGHT;
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// The part of the thread's processor time that recording may take.
    budget: f64,
    ticks_per_ns: f64,
    pub timed: Cost,
    /// Cost of a timed call with counters.
    pub counted: Cost,
    pub only_counted: Cost,
    /// Cost of a clock record, including the update of the account.
    pub clock: Cost,
    timing: f64,
    /// The time that was spent on clock records and flushes, which are necessary whether calls are
    /// timed or not.
    fixed: f64,
    /// The time that was spent on calls that a stub (a short piece of code in front of the
    /// function) only counts.
    counting: f64,
    /// The time that was spent on watching runs, and on other calls that are only counted (ops that
    /// the host announces one by one, and calls in runs that are not watched).
    telling: f64,
    /// Number of the counted calls whose cost is in `telling`.
    told: u64,
    /// The time that was spent on attaching the thread.
    attaching: f64,
    /// The part of the time of an export's calls that may be spent on timing them.
    share: f64,
    /// The part of the time of an export's calls that may be spent on reading counters.
    counter_share: f64,
    /// The part of the thread's future processor time that recording may take.
    left: f64,
}

impl Account {
    /// Opens the account of a thread. Attaching it took `attach_ns` of processor time. `counts`
    /// says whether counters can be read.
    pub fn new(budget: f64, ticks_per_ns: f64, attach_ns: u64, counts: bool) -> Self {
        let ns = |ns: f64| Cost::new(ns * ticks_per_ns);
        let mut account = Self {
            budget,
            ticks_per_ns,
            // These are assumptions. The measurements of the first calls correct them.
            timed: ns(150.0),
            counted: ns(10_000.0),
            only_counted: ns(5.0),
            clock: ns(500.0),
            timing: 0.0,
            fixed: 0.0,
            counting: 0.0,
            telling: 0.0,
            told: 0,
            attaching: attach_ns as f64 * ticks_per_ns,
            share: 0.0,
            counter_share: 0.0,
            left: 0.0,
        };
        account.divide(0.0, counts);
        account
    }

    pub fn price_ns(&self) -> u64 {
        (self.sum() / self.ticks_per_ns) as u64
    }

    /// Adds the cost of a timed call, and of the `skipped` calls that were only counted before it.
    #[inline(always)]
    pub fn add(&mut self, counted: bool, skipped: u64) {
        self.timing += if counted { self.counted.ticks() } else { self.timed.ticks() };
        if skipped > 0 {
            self.counting += skipped as f64 * self.only_counted.ticks();
        }
    }

    /// Adds the cost of an announced op that is only counted.
    #[inline(always)]
    pub fn add_told(&mut self) {
        self.telling += self.only_counted.ticks();
        self.told += 1;
    }

    /// Counts an op that was announced but not timed, in a run of a model whose ops are announced.
    /// The op's cost is a part of the run's cost ([`Account::add_run`]).
    #[inline(always)]
    pub fn add_told_in_watched(&mut self) {
        self.told += 1;
    }

    /// Adds the cost of recording a run of a model, in ticks. `calls` is the number of calls that
    /// were counted without being announced.
    pub fn add_run(&mut self, calls: u64, ticks: f64) {
        self.told += calls;
        self.telling += ticks;
    }

    /// Returns the number of the calls that were only counted, but not by a stub, and their cost in
    /// ns.
    pub fn told(&self) -> (u64, u64) {
        (self.told, (self.telling / self.ticks_per_ns) as u64)
    }

    fn sum(&self) -> f64 {
        self.timing + self.fixed + self.counting + self.telling + self.attaching
    }

    /// Computes the cost of counting from the number of all calls that were only counted. Called
    /// when the thread is detached. Until then, the account lacks the calls after the last timed
    /// call of each export.
    pub fn end(&mut self, only_counted: u64) {
        let counting = only_counted.saturating_sub(self.told);
        self.counting = counting as f64 * self.only_counted.ticks();
    }

    pub fn add_fixed(&mut self, ticks: f64) {
        self.fixed += ticks;
    }

    pub fn add_attaching(&mut self, ns: u64) {
        self.attaching += ns as f64 * self.ticks_per_ns;
    }

    /// Computes again which fraction of the calls' time may be spent on timing, and which on
    /// reading counters. `cpu_ns` is the thread's processor time since it began to attach.
    pub fn update_share(&mut self, cpu_ns: u64, counts: bool) {
        self.divide(cpu_ns as f64, counts);
    }

    fn divide(&mut self, cpu_ns: f64, counts: bool) {
        let cpu = cpu_ns * self.ticks_per_ns;
        let goal = MARGIN * self.budget;
        let debt = self.sum() - goal * cpu;
        let horizon = (cpu / 4.0).max(SHORTEST_HORIZON_NS * self.ticks_per_ns);
        let fixed = self.fixed + self.counting + self.telling;
        let fixed = if cpu > 0.0 { (fixed / cpu).min(1.0) } else { 0.0 };
        let paid_back = debt.max(0.0) / horizon;
        let share = (goal - fixed - paid_back).max(LEAST * self.budget);
        self.left = goal - paid_back;
        (self.share, self.counter_share) =
            if counts { (share / 2.0, share / 2.0) } else { (share, 0.0) };
    }

    /// Returns the period with which the calls of an export are timed from now on. `timed` is the
    /// number of its timed calls, and `ticks` their total time. The present period `current` is
    /// kept if it is long enough and less than twice as long as wanted, because fewer different
    /// periods make better estimates. If one in `watched` runs of the model is watched, the period
    /// refers to the calls in watched runs.
    #[inline(always)]
    pub fn period(&self, timed: u64, ticks: u64, current: u32, watched: u32) -> u32 {
        if timed < FIRST_TIMED {
            return 1;
        }
        // cost / (share · ticks / timed)
        let wanted = self.timed.ticks() * timed as f64 / (self.share * (ticks as f64 + 1.0));
        let watched = watched.max(1);
        choose(wanted / f64::from(watched), current).min(LONGEST / watched)
    }

    /// Returns the period with which runs of a model are watched from now on. Watching makes a run
    /// `cost` ticks longer. A run that is not watched takes `ticks`, and the recorder needs `own`
    /// ticks for it.
    pub fn runs_per_watched(&self, cost: f64, ticks: f64, own: f64, current: u32) -> u32 {
        let share = WATCHING * (self.left - own / (ticks + 1.0)).max(LEAST * self.budget);
        // Even with the budget 0, a run is watched from time to time, to check that the function
        // still makes the same calls.
        choose(cost / (share.max(LEAST_WATCHING) * (ticks + 1.0)), current).min(MOST_RUNS)
    }

    #[inline(always)]
    pub fn counter_period(&self, timed: u64, ticks: u64, period: u32, current: u32) -> u32 {
        if timed < FIRST_COUNTED {
            return 1;
        }
        let more = (self.counted.ticks() - self.timed.ticks()).max(self.timed.ticks());
        let wanted = more * timed as f64 / (self.counter_share * (ticks as f64 + 1.0));
        choose(wanted / f64::from(period.max(1)), current)
    }
}

/// Rounds a period up to 2^n or 3 · 2^n. Keeps the current period if it is long enough and less
/// than twice as long as wanted.
#[inline(always)]
fn choose(wanted: f64, current: u32) -> u32 {
    let (now, wanted) = (f64::from(current), wanted.min(f64::from(LONGEST)));
    if wanted <= now && now < 2.0 * wanted.max(1.0) {
        return current;
    }
    round_up(wanted.ceil() as u32)
}

#[cold]
fn round_up(wanted: u32) -> u32 {
    let wanted = wanted.max(1);
    let power = wanted.next_power_of_two();
    let less = power / 4 * 3;
    if wanted <= less { less } else { power }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes an account in which a tick is a nanosecond, and nothing was spent yet.
    fn account(budget: f64, counts: bool) -> Account {
        let mut account = Account::new(budget, 1.0, 0, counts);
        (account.timed, account.counted) = (Cost::new(100.0), Cost::new(1_100.0));
        account.update_share(1_000_000, counts);
        account
    }

    #[test]
    fn an_export_pays_for_itself() {
        // Timing a call costs 100 ns, and timing may take 80 % of 10 % of the time. For a call of
        // 1,000 ns, that is 80 ns: one call in 1.25 can be timed, rounded up to 2. For a call of
        // 100 ns, it is 8 ns: one call in 12.5, rounded up to 16. Calls of 10,000 ns can all be
        // timed.
        let account = account(0.1, false);
        assert_eq!(account.period(1_000, 1_000_000, 1, 1), 2);
        assert_eq!(account.period(1_000, 100_000, 1, 1), 16);
        assert_eq!(account.period(1_000, 10_000_000, 1, 1), 1);
        // The wanted period is 12.5. The current period is kept if it is long enough and less than
        // twice as long as wanted.
        assert_eq!(account.period(1_000, 100_000, 24, 1), 24);
        assert_eq!(account.period(1_000, 100_000, 32, 1), 16);
        assert_eq!(account.period(FIRST_TIMED - 1, 7, 1, 1), 1);
        assert_eq!(account.period(1_000_000_000, 0, 1, 1), LONGEST);
    }

    #[test]
    fn counters_have_half_of_the_share() {
        // Half of 8 % of 1,000 ns is 40 ns. Timing a call costs 100 ns, so one call in 2.5 is
        // timed, rounded up to 3. Reading counters costs 1,000 ns more, so they can be read in one
        // call in 25. Every third call is timed, so this is one in 25 / 3 = 8.3 of the timed calls,
        // rounded up to 12.
        let account = account(0.1, true);
        assert_eq!(account.period(1_000, 1_000_000, 1, 1), 3);
        assert_eq!(account.counter_period(1_000, 1_000_000, 3, 1), 12);
        assert_eq!(account.counter_period(FIRST_COUNTED - 1, 1_000_000, 1, 1), 1);
    }

    #[test]
    fn runs_are_watched_within_half_of_what_is_left() {
        // 8 % of the 24,000 ticks of a run are 1,920. The recorder needs 180 of them for a run that
        // is not watched; half of the rest is 870. Watching a run costs 43,000 ticks: one run in
        // 49.4, rounded up to 64.
        let account = account(0.1, false);
        assert_eq!(account.runs_per_watched(43_000.0, 24_000.0, 180.0, 1), 64);
        assert_eq!(account.runs_per_watched(100.0, 24_000.0, 180.0, 1), 1);
        // The recorder's 2,000 ticks leave nothing of the budget, so 1/32 of the budget is used: 75
        // ticks. Half of that is 37.5 ticks: one run in 1,147, rounded up to 1,536.
        assert_eq!(account.runs_per_watched(43_000.0, 24_000.0, 2_000.0, 1), 1_536);
        let none = super::Account::new(0.0, 1.0, 0, false);
        assert_eq!(none.runs_per_watched(43_000.0, 24_000.0, 180.0, 1), MOST_RUNS);
    }

    #[test]
    fn what_was_spent_too_much_is_paid_back() {
        let mut account = account(0.1, false);
        // Attaching took 5 ms of the first 10 ms of processor time. 0.8 ms were allowed, so 4.2 ms
        // must be paid back within 20 ms. This leaves only the smallest part for timing: 1/32 of 10
        // %.
        account.add_attaching(5_000_000);
        account.update_share(10_000_000, false);
        // 100 / (0.003125 · 1,000) = 32
        assert_eq!(account.period(1_000, 1_000_000, 1, 1), 32);
        assert_eq!(account.price_ns(), 5_000_000);
        // After 100 ms, the 5 ms for attaching are within the budget.
        account.update_share(100_000_000, false);
        assert_eq!(account.period(1_000, 1_000_000, 1, 1), 2);
    }

    #[test]
    fn what_is_not_drawn_leaves_less_for_timing() {
        let mut account = account(0.1, false);
        // 4 % of the time goes to clock records; 8 % is the goal.
        account.add_fixed(4_000_000.0);
        account.update_share(100_000_000, false);
        // 100 / (0.04 · 1,000) = 2.5 → 3
        assert_eq!(account.period(1_000, 1_000_000, 1, 1), 3);
    }

    #[test]
    fn a_cost_follows_its_measurements_but_not_one_interruption() {
        let mut cost = Cost::new(100.0);
        cost.measured(1_000_000);
        assert!(cost.ticks() < 125.0, "{cost:?}");
        (0..200).for_each(|_| cost.measured(300));
        assert!((cost.ticks() - 300.0).abs() < 1.0, "{cost:?}");
        // Half of the brackets are warm and take 100 ticks, the other half take 300 ticks. Three
        // times the difference between mean and minimum is added ([`UNSEEN`]).
        (0..400).for_each(|i| cost.measured(if i % 2 == 0 { 100 } else { 300 }));
        assert!((cost.ticks() - 500.0).abs() < 30.0, "{cost:?}");
    }

    #[test]
    fn periods_are_rounded_up() {
        for (wanted, rounded) in
            [(0, 1), (1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (6, 6), (7, 8), (9, 12), (13, 16)]
        {
            assert_eq!(round_up(wanted), rounded, "{wanted}");
        }
        assert_eq!(round_up(LONGEST), LONGEST);
    }
}
