//! What is instead of `cluster` without the feature `ballista`: it says how to build it.

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};

use crate::addresses::{Executor, Place, Scheduler};

const WHY: &str = "this counterpoint-query was built without Ballista: in Counterpoint's sources, `cargo build \
                   --release --features ballista --manifest-path query/Cargo.toml` builds it with Ballista, in \
                   about half an hour";

/// Refused.
pub fn is_built() -> Result<(), String> {
    Err(WHY.to_owned())
}

/// Refused.
pub fn session(_: SessionConfig, _: &Place) -> Result<SessionContext, DataFusionError> {
    Err(DataFusionError::Execution(WHY.to_owned()))
}

/// Refused.
pub fn scheduler(_: &Scheduler) -> Result<(), String> {
    is_built()
}

/// Refused.
pub fn executor(_: &Executor) -> Result<(), String> {
    is_built()
}

/// Never asked.
pub fn in_words(_: &Place, why: &str) -> String {
    why.to_owned()
}

/// Never asked.
pub async fn collect(frame: DataFrame, _: &Place) -> Result<Vec<RecordBatch>, DataFusionError> {
    frame.collect().await
}
