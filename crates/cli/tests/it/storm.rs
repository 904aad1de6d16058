//! Tests a signal handler that forks at random moments. The children return into the interrupted
//! code.

use std::process::Command;

use crate::support::{Programs, Recorded, counterpoint};

#[test]
fn children_of_a_signal_handler_survive() {
    let Some(program) = counterpoint("storm") else { return };
    let programs = Programs::get();
    let forks: u32 =
        std::env::var("COUNTERPOINT_FORKS").ok().and_then(|v| v.parse().ok()).unwrap_or(1_000);
    for (kind, events) in [("", "none"), ("bare", "none"), ("", "page-faults:u,task-clock:u")] {
        let mut command = Command::new(&programs.storm);
        command.arg(&programs.library).arg(forks.to_string());
        if !kind.is_empty() {
            command.arg(kind);
        }
        let recorded = Recorded::run(&program, events, &mut command);
        let expected = format!("{forks} came through, 0 did not\n");
        assert_eq!(recorded.stdout(), expected, "{kind} {events}: {}", recorded.stderr());
        assert!(recorded.output.status.success());
        let losses = recorded.losses();
        assert!(losses.is_empty(), "{kind} {events}: {losses:?}");
    }
}
