//! Waits for the rows that a cluster computes for a query.
//!
//! [`collect`] does two things that Ballista's client does not do. It repeats the query once after
//! an error that may not come again, for example if the executor with the result was lost. And if
//! SIGINT or SIGTERM arrives, [`collect`] cancels the query, which the cluster would otherwise
//! continue.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use ballista_core::execution_plans::DistributedQueryExec;
use ballista_core::serde::protobuf::CancelJobParams;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan;
use datafusion::prelude::DataFrame;
use datafusion_proto::protobuf::LogicalPlanNode;
use tokio::signal::unix::{SignalKind, signal};

use crate::addresses::Place;

/// How long this program, after SIGINT or SIGTERM, waits for the scheduler to cancel the query.
const STOPPING: Duration = Duration::from_secs(5);

pub async fn collect(frame: DataFrame, at: &Place) -> Result<Vec<RecordBatch>> {
    let rows = match once(frame.clone(), at).await {
        // Queries only read data, so repeating one does no harm.
        Err(e) if is_worth_repeating(&e) => once(frame, at).await?,
        rows => rows?,
    };
    rows.ok_or_else(|| DataFusionError::Execution("stopped".to_owned()))
}

/// Returns the rows of a query, or `None` if SIGINT or SIGTERM arrives first.
async fn once(frame: DataFrame, at: &Place) -> Result<Option<Vec<RecordBatch>>> {
    let context = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        rows = physical_plan::collect(Arc::clone(&plan), context) => return rows.map(Some),
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    let sent = (plan.as_ref() as &dyn Any).downcast_ref::<DistributedQueryExec<LogicalPlanNode>>();
    if let Some(job) = sent.and_then(DistributedQueryExec::job_id) {
        let told = tokio::time::timeout(STOPPING, cancel(at, job.to_string())).await;
        if !matches!(told, Ok(Ok(()))) {
            eprintln!("counterpoint: the scheduler could not be told, and the cluster may go on");
        }
    }
    Ok(None)
}

async fn cancel(at: &Place, job_id: String) -> Result<()> {
    let failed = |e: String| DataFusionError::Execution(e);
    let scheduler = SchedulerGrpcClient::connect(format!("http://{at}")).await;
    let mut scheduler = scheduler.map_err(|e| failed(e.to_string()))?;
    scheduler.cancel_job(CancelJobParams { job_id }).await.map_err(|e| failed(e.to_string()))?;
    Ok(())
}

/// An error whose text begins with `Job` comes from the scheduler. Before it reports such an error,
/// the scheduler itself has repeated the work of lost executors, so repeating the query would not
/// help.
fn is_worth_repeating(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::Execution(why) => !why.starts_with("Job "),
        error => !matches!(error, DataFusionError::Plan(_) | DataFusionError::SchemaError(..)),
    }
}
