//! Runs queries on a cluster of Ballista, and contains the programs of such a cluster.
//!
//! ```text
//!  counterpoint-query --engine ──► scheduler ──► executor, executor, …
//!        ▲   logical plan           stages           │  read the dataset's files, and hand on rows
//!        └───────────────────────────────────────────┘  through files and Arrow Flight
//! ```
//!
//! A plan travels with the names of functions, not with their code. Ballista's own programs take `sum` for
//! DataFusion's, which wraps. So scheduler and executors are this program, too, which registers its functions
//! in each of the three places ([`crate::functions::register`]).
//!
//! Tables need no casts for Ballista, which cannot group by dictionaries: [`crate::engine`] declares texts as
//! texts and ranks as integers, and they are columns of the files and not parts of their paths.

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

/// Rules that may make a plan without rows and with columns. Plans are sent without the columns of such a part,
/// so these rules are left to the scheduler, whose plans keep them.
const LEFT_TO_THE_SCHEDULER: [&str; 4] =
    ["eliminate_filter", "eliminate_join", "eliminate_limit", "propagate_empty_relation"];

/// Returns `Ok`: this program was built with Ballista.
pub fn is_built() -> Result<(), String> {
    Ok(())
}

/// Makes a session whose queries run on a cluster.
pub fn session(config: SessionConfig, at: &Place) -> Result<SessionContext, DataFusionError> {
    let config = config
        .with_ballista_logical_extension_codec(Arc::new(codec::Codec::default()))
        .upgrade_for_ballista()
        // Otherwise the number of the job, which is needed to stop it, arrives with the result.
        .set_bool(BALLISTA_CLIENT_PULL, true);
    let state = SessionStateBuilder::new().with_default_features().with_config(config).build();
    let state = state.upgrade_for_ballista(format!("http://{at}"))?;
    let mut rules = state.optimizers().to_vec();
    rules.retain(|rule| !LEFT_TO_THE_SCHEDULER.contains(&rule.name()));
    let state = SessionStateBuilder::new_from_existing(state).with_optimizer_rules(rules).build();
    Ok(SessionContext::new_with_state(state))
}

/// Returns the error in the words of the program that found it. An executor's error arrives in
/// Rust's debug format, inside of what scheduler and client say about it.
pub fn in_words(at: &Place, why: &str) -> String {
    let inner = why.rsplit_once("DataFusionError(").and_then(|(_, inner)| {
        let (_, text) = inner.split_once("(\"")?;
        let (text, _) = text.rsplit_once("\")")?;
        let known = [("\\\"", "\""), ("\\'", "'"), ("\\n", "\n"), ("\\\\", "\\")];
        Some(known.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to)))
    });
    inner.unwrap_or_else(|| format!("ballista://{at}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_executors_are_in_their_own_words() {
        let at = Place { host: "a".to_owned(), port: 1 };
        let why = "Job 0 failed: Task failed: DataFusionError(Shared(Execution(\"no \\\"x\\\"\")))";
        assert_eq!(in_words(&at, why), "no \"x\"");
        assert_eq!(in_words(&at, "nobody is there"), "ballista://a:1: nobody is there");
    }
}
