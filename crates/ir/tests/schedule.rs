//! Tests that the loops of a text are matched with the loops of a TVM schedule.

use abi::loops::Mode;
use ir::choice::Options;
use ir::instrument::{Instrumented, instrument};
use ir::schedule::{LINE, Schedule, ScheduledLoop};

/// A text with three loops of a schedule. Loop 1 is inside of loop 0. LLVM has peeled loop 1, so
/// the header of loop 0 is named after loop 1. LLVM has vectorised loop 2: its names do not come
/// from the schedule, but its instructions have the line of loop 2.
const TEXT: &str = include_str!("schedule.ll");

fn scheduled(variable: &str, parent: Option<u32>, chosen: bool) -> ScheduledLoop {
    ScheduledLoop {
        function: "f".into(),
        variable: variable.into(),
        kind: "serial".into(),
        extent: Some(20),
        parent,
        depth: u32::from(parent.is_some()),
        chosen,
        gone: None,
        source: Some(("f.py".into(), 7)),
        lines: Some([1, 2]),
        ids: Vec::new(),
    }
}

fn schedule(chosen: [bool; 3]) -> Schedule {
    Schedule {
        counterpoint_schedule: ir::schedule::VERSION,
        text: "for i in range(20):\n    for k in range(64):\n".into(),
        path: "tvm.tir".into(),
        loops: vec![
            scheduled("i", None, chosen[0]),
            scheduled("k", Some(0), chosen[1]),
            scheduled("v", None, chosen[2]),
        ],
        functions: Vec::new(),
    }
}

fn done(outer: &str, schedule: &Schedule) -> Instrumented {
    let text = TEXT.replace("!OUTER", outer);
    let text = text.replace("ZERO", &LINE.to_string());
    let text = text.replace("ONE", &(LINE + 1).to_string());
    let text = text.replace("TWO", &(LINE + 2).to_string());
    let options = Options { mode: Mode::Count, schedule: Some(schedule), ..Options::default() };
    instrument(text.as_bytes(), &options).expect("a text that can be instrumented")
}

/// Returns, for each loop of the schedule, the labels of the header blocks that were matched with
/// it.
fn labels(done: &Instrumented) -> Vec<Vec<&str>> {
    let label = |id: &u32| done.table.entries[*id as usize].label.as_deref().expect("a loop");
    done.table.schedule.iter().map(|one| one.ids.iter().map(label).collect()).collect()
}

#[test]
fn branches_labels_and_lines_say_which_loop_it_is() {
    let all = done("!6", &schedule([true; 3]));
    let [outer, inner] = ["for_body_k__cpt1_.peel.next", "for_body_k__cpt1_"];
    assert_eq!(labels(&all), [vec![outer], vec![inner], vec!["vector.body"]]);
    let named = all.table.entries.iter().filter_map(|entry| entry.variable.as_deref());
    assert_eq!(named.collect::<Vec<_>>(), ["i", "k", "v"]);
    assert!(
        all.table.entries[1..]
            .iter()
            .all(|e| (e.file.as_deref(), e.line) == (Some("f.py"), Some(7)))
    );
    assert_eq!(all.table.texts[1].language, "tir");
    let inner_only = done("!6", &schedule([false, true, false]));
    assert_eq!(labels(&inner_only), [vec![], vec![inner], vec![]]);
    assert_eq!(inner_only.counts.instrumented_loops, 1);
    assert_ne!(all.table.module, inner_only.table.module);
}

#[test]
fn a_loop_that_contradicts_the_schedule_has_no_row() {
    // Here, the branch of the outer loop has the debug line of loop 2, but loop 2 does not contain
    // loop 1.
    let wrong = done("!8", &schedule([true; 3]));
    assert_eq!(
        labels(&wrong),
        [vec![], vec![], vec!["for_body_k__cpt1_.peel.next", "vector.body"]]
    );
    // TVM unrolled loop 0.
    let mut gone = schedule([true; 3]);
    gone.loops[0].gone = Some("unrolled".into());
    assert_eq!(labels(&done("!6", &gone))[0], Vec::<&str>::new());
}
