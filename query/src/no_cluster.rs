//! Replaces the module `cluster` if the feature `ballista` is off. All functions that are ever
//! called return an error that says how to build with Ballista.

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};

use crate::addresses::{Executor, Place, Scheduler};

const WHY: &str = "this counterpoint-query was built without Ballista: in Counterpoint's sources, `cargo build \
                   --release --features ballista --manifest-path query/Cargo.toml` builds it with Ballista, in \
                   about half an hour";

pub fn is_built() -> Result<(), String> {
    Err(WHY.to_owned())
}

pub fn session(_: SessionConfig, _: &Place) -> Result<SessionContext, DataFusionError> {
    Err(DataFusionError::Execution(WHY.to_owned()))
}

pub fn scheduler(_: &Scheduler) -> Result<(), String> {
    is_built()
}

pub fn executor(_: &Executor) -> Result<(), String> {
    is_built()
}

/// Never called, because [`is_built`] always fails, and the program ends then.
pub fn in_words(_: &Place, why: &str) -> String {
    why.to_owned()
}

/// Never called, because [`session`] always fails.
pub async fn collect(frame: DataFrame, _: &Place) -> Result<Vec<RecordBatch>, DataFusionError> {
    frame.collect().await
}
