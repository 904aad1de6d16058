//! Lists the losses: ways in which data can be lost or distorted. Each has a name, a severity and
//! an explanation. Hot paths count losses by number.
//!
//! The numbers of losses are part of the file format: append new losses, and never reorder them.

crate::named! {
    /// How much a loss matters to somebody who reads the numbers in a view.
    pub enum Severity {
        /// The loss is worth knowing, but no number in a view is wrong because of it.
        Note = "note",
        /// Something is missing: totals are too small, or a counter is absent.
        Missing = "missing",
        /// Numbers that a view shows may be wrong.
        Distorted = "distorted",
    }
}

macro_rules! losses {
    ($( $num:literal $variant:ident $name:literal $severity:ident $help:literal; )*) => {
        /// A named way to lose or distort data.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Loss {
            $( #[doc = $help] $variant = $num, )*
        }

        impl Loss {
            /// All losses, in the order of their numbers.
            pub const ALL: &'static [Loss] = &[ $( Loss::$variant, )* ];

            /// Returns the name in `snake_case`.
            pub fn name(self) -> &'static str {
                match self { $( Loss::$variant => $name, )* }
            }

            /// Returns the importance of the loss.
            pub fn severity(self) -> Severity {
                match self { $( Loss::$variant => Severity::$severity, )* }
            }

            /// Returns an explanation.
            pub fn help(self) -> &'static str {
                match self { $( Loss::$variant => $help, )* }
            }
        }
    };
}

losses! {
    0 CallCutShort "call_cut_short" Note
        "calls that had begun when their process or thread died, or when the session that recorded them ended; they are not in any total";
    1 CallAbandoned "call_abandoned" Missing
        "calls that were not recorded because they never returned to the probe (longjmp or an exception went past it)";
    2 ProbeReentered "probe_reentered" Missing
        "calls that ran but were not recorded, because a signal handler made them while it interrupted the recorder, or because they were nested more than thirty-two deep";
    3 NoPage "no_page" Missing
        "calls not recorded because no recorder page was free or the recorder's state for the thread could not be created; use fewer threads";
    4 FlushFailed "flush_failed" Missing
        "calls dropped because a full page could not be written to the profile; see the errno, and check the disk space and the permissions of the output directory";
    5 FileSizeLimit "file_size_limit" Missing
        "calls dropped because writing them would have exceeded the process's RLIMIT_FSIZE (ulimit -f)";
    6 PoolTooSmall "pool_too_small" Missing
        "recorder pages that could not be obtained; see the errno: the /dev/shm of a container is often only 64 MB, and a program that locks its memory cannot map more than RLIMIT_MEMLOCK";
    7 CounterOpenFailed "counter_open_failed" Missing
        "threads whose counters could not be opened; their calls have times but no counts";
    8 CounterReadFailed "counter_read_failed" Missing
        "calls, or kernels and ops of a device, whose counters could not be read; they have times but no counts";
    9 DescriptorLost "descriptor_lost" Missing
        "threads whose counter descriptors were closed by the program; their later calls have times but no counts";
    10 SlotsExhausted "slots_exhausted" Missing
        "exported functions that were not intercepted because all stubs were in use; none of their calls are recorded";
    11 LibraryRejected "library_rejected" Missing
        "executable libraries that were not profiled, because their ABI version is unknown or their tables are unreadable";
    12 NameTruncated "name_truncated" Note
        "names or paths longer than 4,095 bytes that were cut";
    13 ThreadGone "thread_gone" Missing
        "calls that were not recorded because thread-exit destructors made them after the recorder had left the thread";
    14 AgentDisabled "agent_disabled" Missing
        "occasions on which the recorder turned itself off after an internal error; the rest of the process is not recorded. Please report it";
    15 PartUnwritable "part_unwritable" Missing
        "processes whose metadata, or part of it, could not be written to the profile; their calls may show numbers instead of names";
    16 ProcessTableFull "process_table_full" Note
        "processes that share one row of the table of losses, because there were too many processes";
    17 TornPage "torn_page" Missing
        "pages of the profile that fail their checksum or end early; none of the calls in them are used";
    18 TornRecord "torn_record" Missing
        "records that cannot be decoded; the rest of their page is not used";
    19 MissingPage "missing_page" Missing
        "gaps in a thread's sequence of pages";
    20 TornMetadata "torn_metadata" Missing
        "metadata files or ledgers that end early or fail their checksum; the names or losses in them are missing";
    21 ClockUncalibrated "clock_uncalibrated" Distorted
        "profiles with too few clock snapshots to convert ticks; 1 tick is shown as 1 ns, so only ratios of times are meaningful";
    22 MultiplexedCall "multiplexed_call" Distorted
        "calls during which the counters ran for only part of the time; their counts are neither scaled nor added to totals";
    23 WrittenWhileRead "written_while_read" Note
        "the profile was still being recorded when it was read; later calls are not in it";
    24 PoolVanished "pool_vanished" Missing
        "recorder pools that were gone or unreadable before they were collected (a reboot, a cleaned /dev/shm, another machine or user); calls that had not been flushed are missing";
    25 TornTrack "torn_track" Missing
        "streams of tracks that end in the middle of a message or are damaged; data after the damage is not used";
    26 TrackOverrun "track_overrun" Missing
        "samples of a track that were not taken when they were due (a busy or suspended machine, a full disk); totals of counters are still right, and rates are means over longer intervals";
    27 TrackReadFailed "track_read_failed" Missing
        "samples of tracks whose counter could not be read";
    28 ChildStatic "child_static" Missing
        "programs that were started and not recorded, because they are statically linked and no library can be loaded into them; programs that they start may be recorded";
    29 ChildPrivileged "child_privileged" Missing
        "programs that were started with more rights than their user (set-user-id, set-group-id, file capabilities), so that the dynamic linker refuses the recorder; neither they nor what they start is recorded";
    30 ChildOtherLibc "child_other_libc" Missing
        "programs that were started and use a C library other than glibc (musl); the recorder was removed from their environment, because they would not start with it, so neither they nor what they start is recorded";
    31 ChildOldGlibc "child_old_glibc" Missing
        "programs that were started and whose glibc is older than 2.17 or of an unknown version; the recorder was removed from their environment, because they might not start with it, so neither they nor what they start is recorded";
    32 ChildOtherMachine "child_other_machine" Missing
        "programs that were started and are built for another processor or word size; the recorder was removed from their environment, so neither they nor what they start is recorded";
    33 ChildWithoutVariables "child_without_variables" Missing
        "programs that were started without the recorder's variables (LD_PRELOAD, COUNTERPOINT_RUN_FILE) in their environment; the variables are not put back, because they were removed on purpose, so neither these programs nor what they start is recorded";
    34 SecondAgent "second_agent" Note
        "processes into which Counterpoint was loaded twice; the first library records, and the second does nothing";
    35 OpShapesLeftOut "op_shapes_left_out" Missing
        "calls of ops that were recorded by name only, because their arguments have more shapes than can be recorded, or because the process has used too many different shapes (65,536)";
    36 ParallelUnseen "parallel_unseen" Missing
        "hosts whose compiled code was loaded before its parallel launches could be watched, or that do not launch them in a way that can be watched; what their ops do on other threads is not counted for any op";
    37 TaskNotRecorded "task_not_recorded" Missing
        "tasks of parallel regions whose thread could not be recorded; their counts are missing from their op";
    38 CollectorFailed "collector_failed" Missing
        "calls for which a user's collector failed or wrote more values than it declared; the calls are recorded without its values";
    39 ChildSanitized "child_sanitized" Missing
        "programs that were not recorded, because the recorder would disturb their checker: either a shared AddressSanitizer runtime that must be loaded before every other library (older than GCC 8, or with options set by the program itself; what such a program starts is not recorded either), or valgrind's helgrind or drd";
    40 FileRefused "file_refused" Missing
        "files of the profile that were not opened because they are symbolic links, pipes, devices or anything else that is not a plain file; their data is missing";
    41 PoolRefused "pool_refused" Missing
        "recorder pools that the manifest names but that do not belong to this profile; they were neither read nor changed, and calls that had not been flushed are missing";
    42 PoolOfOriginal "pool_of_original" Note
        "recorder pools that belong to the profile of which this one is a copy; their calls are shown here as long as the pools exist; `recover` moves them into the original, and they are then missing from this copy";
    43 TraceValueLost "trace_value_lost" Missing
        "values of an imported trace that do not fit their key (a time beyond ±292 years, a call before −73 or after +219 years, a list as a name) or are not JSON (NaN, Infinity); they are missing";
    44 TraceEventDamaged "trace_event_damaged" Missing
        "events of an imported trace that cannot be read and were left out; `counterpoint trace check` says where they are";
    45 TraceTimeRounded "trace_time_rounded" Note
        "times of an imported trace that have more digits than nanoseconds; views compute with whole nanoseconds, and `trace export` to JSON writes all digits";
    46 CallBelowResolution "call_below_resolution" Distorted
        "calls of an imported trace that took less than half a nanosecond, but more than nothing; views show them as 0 ns";
    47 TraceRestUnread "trace_rest_unread" Missing
        "trace files in which something follows the end of the trace, for example a second trace; it was not read";
    48 LoopNoRoom "loop_no_room" Missing
        "threads for which the pool had no room for the counts of an instrumented module; what these threads did in its loops is not counted";
    49 LoopLogFull "loop_log_full" Missing
        "begins and ends of loops in mode log that found no room in the thread's log, although they were among the first of their loop; they are counted but not recorded";
    50 TornLoops "torn_loops" Missing
        "places where a file or a page with the counts of loops is damaged; what cannot be read there is missing";
    51 PluginFailed "plugin_failed" Missing
        "failures of profiler plugins: one could not be loaded, crashed, returned an error, or did something that the plugin interface forbids; what it was doing then is missing";
    52 PluginBufferFull "plugin_buffer_full" Missing
        "events of profiler plugins that did not fit into the limit of --max-buffer or --plugin-buffer";
    53 PluginEventsLeft "plugin_events_left" Missing
        "files with events of profiler plugins, or with recordings of another profiler, that are not shown: their process is still running, or they could not be converted";
    54 RecordingIncomplete "recording_incomplete" Missing
        "recordings of a host's own profiler of which a part is missing: the process ended or the disk was full before all was handed over, or it is damaged";
    55 RangeEndedElsewhere "range_ended_elsewhere" Missing
        "ranges that the program marked and that ended on another thread than they began (asynchronous functions), so that their counters cannot be read; they have no row";
    56 LoopModuleRefused "loop_module_refused" Missing
        "instrumented executables whose descriptor is in memory that is read-only or shared with other processes; their loops were not counted";
    57 CodeNotKept "code_not_kept" Missing
        "modules with instrumented loops whose machine code was not copied into the profile (--keep-code): it is larger than 64 MiB (512 MiB for all of a process), or could not be read or written; `loops report --asm` needs their files";
    58 TornCounts "torn_counts" Missing
        "places where the exact counts of calls of a run with --budget are damaged; the numbers of calls are too small";
    59 RunsUnlike "runs_unlike" Distorted
        "runs of a model whose ops were counted without being watched, because earlier runs made the same calls, but which failed or may have made other calls";
    60 RecordingInvalid "recording_invalid" Missing
        "recordings of a host's own profiler that were left out because the host leaves them invalid: another profiler of the process was prepared, started or stopped while they ran, or they were stopped on another thread than they were started on";
    61 Inconsistent "inconsistent" Distorted
        "rows in which what was to be subtracted for the recorder contradicts what was recorded (the view then shows all values as they were recorded), or times of threads and costs that contradict each other. Please report it";
    62 DeviceWorkUntimed "device_work_untimed" Missing
        "commands that programs gave to a device and that have no times, because they failed, had not ended when the recording did, or the device gave none; they are in no total";
}

impl Loss {
    /// Number of losses for which the tables of the file format have room. `ALL.len()` must stay
    /// below this number.
    pub const CAPACITY: usize = 64;

    /// Returns the loss with this number, or `None` if this version does not know it.
    pub fn from_number(n: usize) -> Option<Self> {
        Self::ALL.get(n).copied()
    }

    /// Returns the number in the file format.
    pub fn number(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_names_unique() {
        let mut names = std::collections::BTreeSet::new();
        for (i, loss) in Loss::ALL.iter().enumerate() {
            assert_eq!(loss.number(), i, "{}", loss.name());
            assert_eq!(Loss::from_number(i), Some(*loss));
            assert!(names.insert(loss.name()), "{} twice", loss.name());
        }
        assert!(Loss::ALL.len() < Loss::CAPACITY);
    }

    /// The numbers are stored in files, so this list may only grow at its end.
    #[test]
    fn numbers_are_frozen() {
        assert_eq!(Loss::CallCutShort.number(), 0);
        assert_eq!(Loss::CounterOpenFailed.number(), 7);
        assert_eq!(Loss::TornPage.number(), 17);
        assert_eq!(Loss::WrittenWhileRead.number(), 23);
    }
}
