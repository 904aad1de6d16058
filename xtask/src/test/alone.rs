//! Runs failed tests once more, when nothing else runs.
//!
//! Some tests fail if the machine is too slow. A test that passes alone does not make the run fail,
//! but the summary names it. A test that fails because of a rare defect would probably pass the
//! second time, too, so the output of its first run is worth reading.

use anyhow::Result;

use super::steps::Step;
use crate::process::say;

/// If more tests than this failed, the machine's speed is probably not the reason.
const MOST: usize = 6;

/// Runs the failed tests of each step once more, unless more than [`MOST`] tests failed in all
/// steps together. A step with another failure, such as a crash of pytest, does not run again.
/// `again` gets the step's name and the tests; it returns `None` if the step cannot run single
/// tests.
pub fn run(
    steps: &mut [Step],
    again: impl Fn(&'static str, &[String]) -> Result<Option<Step>>,
) -> Result<()> {
    if steps.iter().map(|step| step.failures.len()).sum::<usize>() > MOST {
        return Ok(());
    }
    for step in steps {
        let all_known = step.failures.len() as u64 == step.tally.failed;
        if step.failures.is_empty() || !all_known || !step.only_tests_failed {
            continue;
        }
        say(format_args!("once more, alone: {}", step.failures.join(", ")));
        if let Some(second) = again(step.name, &step.failures)? {
            take_over(step, second);
        }
    }
    Ok(())
}

/// Counts the tests that passed the second time as passed. If some failed again, the last lines of
/// output are those of the second run.
fn take_over(step: &mut Step, second: Step) {
    let ran = second.tally.passed + second.tally.failed;
    if ran < step.failures.len() as u64 {
        return; // Not all of the tests were found.
    }
    let (failed, passed): (Vec<String>, Vec<String>) =
        std::mem::take(&mut step.failures).into_iter().partition(|t| second.failures.contains(t));
    step.tally.passed += passed.len() as u64;
    step.tally.failed -= passed.len() as u64;
    step.failures = failed;
    step.passed_alone = passed;
    if step.failures.is_empty() {
        step.error = second.error;
    } else {
        step.last_lines = second.last_lines;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::steps::Tally;

    fn step(passed: u64, failures: &[&str]) -> Step {
        let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
        let error = (!failures.is_empty()).then(|| "exit status 100".to_string());
        let tally = Tally { passed, failed: failures.len() as u64, skipped: 0 };
        Step {
            name: "some",
            time: Default::default(),
            tally,
            error,
            only_tests_failed: true,
            failures,
            passed_alone: vec![],
            last_lines: ["the end".to_string()].into(),
        }
    }

    #[test]
    fn what_fails_twice_stays_failed() {
        let mut first = step(9, &["a", "b"]);
        first.last_lines = ["the end of another test".to_string()].into();
        take_over(&mut first, step(1, &["b"]));
        assert_eq!(first.tally, Tally { passed: 10, failed: 1, skipped: 0 });
        assert_eq!(
            (&*first.failures, &*first.passed_alone),
            (&["b".into()][..], &["a".into()][..])
        );
        assert!(first.error.is_some());
        assert_eq!(first.last_lines, ["the end"]);
        take_over(&mut first, step(1, &[]));
        assert_eq!(first.tally.failed, 0);
        assert!(first.error.is_none());
    }

    #[test]
    fn a_crash_is_not_forgiven() {
        let mut steps = [Step { only_tests_failed: false, ..step(9, &["a"]) }];
        run(&mut steps, |_, _| panic!("not asked for")).unwrap();
        assert!(steps[0].error.is_some());
    }

    #[test]
    fn a_second_run_without_the_tests_changes_nothing() {
        let mut first = step(9, &["a"]);
        take_over(&mut first, step(0, &[]));
        assert_eq!(first.tally.failed, 1);
        assert!(first.error.is_some());
    }
}
