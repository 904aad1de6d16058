//! Makes one recording with a plugin that was compiled from `tests/programs/plugins/price.c`, and
//! writes the plugin's events to /dev/null. The plugin prints what an event costs. Usage: `price
//! PLUGIN`.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use plugin_host::stream::Writer;
use plugin_host::{Host, Plugin, Problem, Setup};

fn main() -> ExitCode {
    let Some(file) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: price PLUGIN");
        return ExitCode::from(2);
    };
    let plugin = Plugin::load(&file, Host::leak(|_, text| eprintln!("{text}")));
    let types: Vec<u32> = plugin.profilers.iter().flat_map(|p| p.types.clone()).collect();
    let setup = Setup { types: &types, ..Setup::default() };
    let session = plugin.profilers.first().and_then(|profiler| profiler.create(&setup));
    let (Some(mut session), Ok(nowhere)) = (session, File::create("/dev/null")) else {
        eprintln!("{}: cannot be recorded: {:?}", file.display(), plugin.problems.all());
        return ExitCode::FAILURE;
    };
    let mut writer = Writer::new(nowhere, None);
    session.start();
    session.stop();
    let handed_over = session.process(&mut writer);
    let written = writer.finish();
    drop(session);
    // The plugin adds events without names on purpose.
    let mut problems = plugin.problems.all();
    problems.retain(|(problem, _)| !matches!(problem, Problem::Unnamed));
    match (handed_over, written, &problems[..]) {
        (true, Ok(0), []) => ExitCode::SUCCESS,
        (_, written, problems) => {
            eprintln!("{}: {written:?}, {problems:?}", file.display());
            ExitCode::FAILURE
        }
    }
}
