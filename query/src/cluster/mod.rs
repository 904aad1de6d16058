//! Runs queries on a cluster of Ballista, and contains the programs of such a cluster.
//!
//! ```text
//!  counterpoint-query --engine ──► scheduler ──► executor, executor, …
//!        ▲   logical plan           stages           │  read the dataset's files, and hand on rows
//!        └───────────────────────────────────────────┘  through files and Arrow Flight
//! ```
//!
//! The programs of a cluster send each other plans with the names of functions, not with their
//! code. Ballista's own scheduler and executor would use DataFusion's `sum`, which silently wraps
//! on overflow. So this program is client, scheduler and executor, and registers its own functions
//! in each of them ([`crate::functions::register`]).
//!
//! Ballista cannot group by dictionary columns, so the tables have none: [`crate::engine`] declares
//! text columns as plain strings, and ranks as integers.

mod codec;
mod collect;
mod serve;

use std::sync::Arc;

use ballista::extension::{SessionConfigExt, SessionStateExt};
use ballista_core::config::BALLISTA_CLIENT_PULL;
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};

pub use collect::collect;
pub use serve::{executor, scheduler};

use crate::addresses::Place;

/// Optimizer rules that may replace a part of a plan by a table that has columns but no rows. When
/// the client sends a plan to the scheduler, the columns of such a table are lost. So these rules
/// are left to the scheduler.
const LEFT_TO_THE_SCHEDULER: [&str; 4] =
    ["eliminate_filter", "eliminate_join", "eliminate_limit", "propagate_empty_relation"];

pub fn is_built() -> Result<(), String> {
    Ok(())
}

pub fn session(config: SessionConfig, at: &Place) -> Result<SessionContext, DataFusionError> {
    let config = config
        .with_ballista_logical_extension_codec(Arc::new(codec::Codec::default()))
        .upgrade_for_ballista()
        // Without this setting, the client learns the id of the job (the query on the cluster) only
        // with the result, which is too late to cancel it.
        .set_bool(BALLISTA_CLIENT_PULL, true);
    let state = SessionStateBuilder::new().with_default_features().with_config(config).build();
    let state = state.upgrade_for_ballista(format!("http://{at}"))?;
    let mut rules = state.optimizers().to_vec();
    rules.retain(|rule| !LEFT_TO_THE_SCHEDULER.contains(&rule.name()));
    let state = SessionStateBuilder::new_from_existing(state).with_optimizer_rules(rules).build();
    Ok(SessionContext::new_with_state(state))
}

/// Returns the text of an executor's error, or the whole message `why` if it contains none. An
/// executor's error arrives in Rust's debug format, inside the messages of the scheduler and the
/// client.
pub fn in_words(at: &Place, why: &str) -> String {
    let inner = why.rsplit_once("DataFusionError(").and_then(|(_, inner)| {
        let (_, text) = inner.split_once("(\"")?;
        let (text, _) = text.rsplit_once("\")")?;
        Some(unescaped(text))
    });
    inner.unwrap_or_else(|| format!("ballista://{at}: {why}"))
}

/// Returns a text without the escapes of Rust's debug format for quotes, line breaks and backslashes.
fn unescaped(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match (c, rest.clone().next()) {
            ('\\', Some(of @ ('"' | '\'' | '\\' | 'n'))) => {
                rest.next();
                all.push(if of == 'n' { '\n' } else { of });
            }
            _ => all.push(c),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_executors_are_in_their_own_words() {
        let at = Place { host: "a".to_owned(), port: 1 };
        let why = "Job 0 failed: Task failed: DataFusionError(Shared(Execution(\"no \\\"x\\\"\")))";
        assert_eq!(in_words(&at, why), "no \"x\"");
        assert_eq!(unescaped(r"\\n is not\na line break"), "\\n is not\na line break");
        assert_eq!(in_words(&at, "nobody is there"), "ballista://a:1: nobody is there");
    }
}
