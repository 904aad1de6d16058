//! The steps of `run`, `env`, `session` and `hook` before a program starts: they resolve and check
//! what to record, and make the profile.
//!
//! ```text
//!  options: what was asked ─► choice: counters that work here ─┐
//!                             found: library, pool, clock, … ──┼─► make: a profile to record into
//!                             place: where it goes ────────────┘
//! ```

mod choice;
mod found;
mod make;
mod options;
mod place;
mod plugins;
mod without_plugins;

use machine::Machine;
use profile::manifest::{CounterInfo, Origin};

use crate::failure::Failure;
use crate::metrics::before_run;

pub use choice::{
    Choice, Chosen, ask_for_counters, counters_of, own_readings, refused, resolve, system_wide,
};
pub use found::library_places;
pub use make::{PRELOAD_VARIABLE, Prepared, make, manifest};
pub use options::{Beside, Recording, interval};
pub use place::{DirectoryLock, Running, make_directory, make_way, place};

/// Makes what a recording needs, except the manifest, which [`Prepared::announce`] writes later.
/// `system` names counters to sample on every CPU. On failure, what was made is removed.
pub fn prepare(
    recording: &Recording,
    system: &[String],
    origin: Origin,
    command: &[String],
) -> Result<Prepared, Failure> {
    let machine = Machine::here();
    let choice = choose(recording, system, origin, &machine)?;
    make(recording, choice, &machine, &place(recording.output())?, origin, command)
}

/// Resolves and checks what to record. Creates nothing.
pub fn choose(
    recording: &Recording,
    system: &[String],
    origin: Origin,
    machine: &Machine,
) -> Result<Choice, Failure> {
    if let Some((rank, size)) = recording.rank.zip(recording.world_size).filter(|(r, n)| r >= n) {
        return Err(Failure::new(format!("--rank {rank}: must be below --world-size {size}")));
    }
    let resolver = recording.naming.resolver(machine);
    let Chosen { threads: counters, packages: mut beside, notes } =
        counters_of(recording, &resolver, machine)?;
    beside.extend(system_wide(system, beside.len() as u16, &resolver, machine)?);
    if let (Some(counter), true) = (beside.first(), origin != Origin::Run) {
        return Err(Failure::new(format!("{} counts a whole package, not a thread", counter.name))
            .hint("`counterpoint run` samples it while the program runs"));
    }
    let infos: Vec<CounterInfo> = counters.iter().map(Into::into).collect();
    let metrics = before_run(&recording.metrics, &infos)?;
    let plugins = recording.plugins.resolve(origin)?;
    let mut choice = Choice { counters, beside, notes, metrics, plugins };
    if recording.events.is_empty() && choice.counters.is_empty() {
        choice.notes.extend(ask_for_counters(origin, &resolver));
    }
    Ok(choice)
}
