//! The child process in which a plugin runs. The child's original standard output gets the answer
//! to a question, or the events that the plugin records. Text that the plugin prints goes to
//! standard error.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::process::ExitCode;

use plugin_host::conformance::probes;
use plugin_host::stream::Writer;
use plugin_host::{Host, Plugin, Session, Setup, Sink};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::plugin_events::is_json;
use crate::plugin_kinds;

#[derive(clap::Args)]
pub struct Args {
    /// Plugin
    file: PathBuf,
    /// The process that asks
    #[arg(long)]
    asker: Option<u32>,
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Say what it is
    List,
    /// Ask one thing of it
    Probe { number: usize },
    /// Record; `start`, `pause`, `resume`, `stop`, `end` come on standard input, a line each
    Record {
        /// Numbers of types; without any, all that it supports
        #[arg(long, value_delimiter = ',')]
        types: Vec<u32>,
        #[arg(long)]
        warmup_ns: i64,
        #[arg(long)]
        max_buffer: Option<u64>,
        #[arg(long, default_value = "")]
        configuration: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Listed {
    pub profilers: Vec<ListedProfiler>,
    pub problems: Vec<Said>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ListedProfiler {
    pub name: String,
    pub kinds: Vec<String>,
    pub interface_bytes: usize,
    pub extension: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Said {
    pub what: String,
    pub count: u64,
    /// Whether data is missing because of this problem.
    pub serious: bool,
}

/// Mirrors `plugin_host::conformance::Finding`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Found {
    pub level: String,
    pub clause: String,
    pub what: String,
}

/// A message of the child while it records, as a line of JSON on the descriptor [`ANSWERS`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// What the child begins to do now. If the child dies, the last `Doing` says what the child was
    /// doing.
    Doing(String),
    /// The plugin has handed over its events, and its sessions are destroyed.
    Done(Listed),
}

fn say(level: u32, text: &str) {
    if level >= plugin_kinds::log_level() {
        crate::terminal::say!("{text}");
    }
}

/// Returns the original standard output. From now on, text that the plugin prints to standard
/// output goes to standard error.
fn answers() -> io::Result<File> {
    // SAFETY: the calls take numbers of descriptors of this process, and nothing else owns the new
    // descriptor.
    unsafe {
        let own = libc::fcntl(1, libc::F_DUPFD_CLOEXEC, 100);
        if own < 0 || libc::dup2(2, 1) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(File::from(OwnedFd::from_raw_fd(own)))
    }
}

pub fn main(args: &Args) -> Result<ExitCode, Failure> {
    if !matches!(args.what, What::Record { .. }) {
        // This process leads its own process group, so Ctrl-C on the terminal ends only its parent.
        // The operating system is therefore told to kill this process when the parent ends.
        // SAFETY: this command of prctl takes numbers only.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        // The parent may have ended before the call of prctl.
        if args.asker.is_some_and(|asker| asker != parent_id()) {
            return Err(Failure::new("nobody waits for the answer"));
        }
    }
    let mut out = answers()?;
    match &args.what {
        What::List => {
            let host = Host::leak(say);
            let plugin = Plugin::load(&args.file, host);
            answer(&mut out, &listed(&plugin, host))?;
        }
        What::Probe { number } => {
            let all = probes();
            let probe = all.get(*number).ok_or_else(|| Failure::new("no such probe"))?;
            let findings = probe.run(&args.file, is_json);
            let found: Vec<Found> = findings
                .0
                .into_iter()
                .map(|finding| Found {
                    level: finding.level.name().to_owned(),
                    clause: finding.clause.id.to_owned(),
                    what: finding.what,
                })
                .collect();
            answer(&mut out, &found)?;
        }
        What::Record { types, warmup_ns, max_buffer, configuration } => {
            let configuration = CString::new(configuration.as_str())
                .map_err(|_| Failure::new("a configuration cannot have a zero byte"))?;
            let setup = Setup {
                types,
                configuration: &configuration,
                warmup_ns: *warmup_ns,
                max_buffer_bytes: max_buffer.unwrap_or(0),
            };
            record(&args.file, &setup, *max_buffer, out)?;
        }
    }
    // The plugin's threads may still run, and its destructors may crash.
    // SAFETY: `_exit` runs no destructors, and what this process wrote has been flushed.
    unsafe { libc::_exit(0) }
}

fn answer(out: &mut impl Write, what: &impl Serialize) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(what).map_err(Failure::new)?;
    line.push(b'\n');
    Ok(out.write_all(&line)?)
}

fn listed(plugin: &Plugin, host: &Host) -> Listed {
    let declared = host.types();
    Listed {
        profilers: plugin
            .profilers
            .iter()
            .map(|profiler| ListedProfiler {
                name: profiler.name.clone(),
                kinds: profiler.types.iter().map(|n| plugin_kinds::name(*n, &declared)).collect(),
                interface_bytes: profiler.interface_bytes,
                extension: profiler.extension.is_some(),
            })
            .collect(),
        problems: plugin
            .problems
            .all()
            .into_iter()
            .map(|(problem, count)| Said {
                what: problem.to_string(),
                count,
                serious: problem.loses(),
            })
            .collect(),
    }
}

/// The descriptor to which a recording child writes each [`Answer`]. The parent opens it.
pub const ANSWERS: i32 = 3;

/// Follows the orders of the parent, which arrive as lines on standard input.
fn record(
    file: &std::path::Path,
    setup: &Setup<'_>,
    max_buffer: Option<u64>,
    events: File,
) -> Result<(), Failure> {
    // SAFETY: the parent opened this descriptor for this process, and nothing else uses it.
    let mut says = File::from(unsafe { OwnedFd::from_raw_fd(ANSWERS) });
    let mut doing = |what: &str| answer(&mut says, &Answer::Doing(what.to_owned()));
    doing("while it was loaded and registered")?;
    let host = Host::leak(say);
    let plugin = Plugin::load(file, host);
    doing("in profilerCreate")?;
    let wanted = plugin.wanted(host, setup.types);
    let setup = Setup { types: &wanted, ..setup.clone() };
    let mut sessions: Vec<Session<'_>> =
        plugin.profilers.iter().filter_map(|profiler| profiler.create(&setup)).collect();
    doing("while it warmed up")?;
    for line in io::stdin().lock().lines() {
        match line?.as_str() {
            "start" => {
                doing("in profilerStart")?;
                for session in &mut sessions {
                    session.start();
                }
                doing("while it recorded")?;
            }
            order @ ("pause" | "resume") => {
                doing("in toggle")?;
                for session in &mut sessions {
                    session.toggle(order == "resume");
                }
                doing("while it recorded")?;
            }
            "stop" => {
                doing("in profilerStop")?;
                for session in &mut sessions {
                    session.stop();
                }
            }
            _ => break,
        }
    }
    doing("in profilerProcessEvents")?;
    let mut writer = Writer::new(events, max_buffer);
    for (index, (name, base)) in host.types().iter().enumerate() {
        writer.kind(abi::kineto::FIRST_OWN_TYPE + index as u32, name, *base);
    }
    for session in &mut sessions {
        session.process(&mut writer);
        writer.flush()?;
    }
    writer.finish()?;
    doing("in profilerDestroy")?;
    drop(sessions);
    answer(&mut says, &Answer::Done(listed(&plugin, host)))
}
