//! Runs the scheduler or an executor of a Ballista cluster.

use std::fs::DirBuilder;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ballista_core::registry::BallistaFunctionRegistry;
use ballista_core::utils::default_session_builder;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::{SchedulerConfig, TaskDistributionPolicy};
use ballista_scheduler::scheduler_process::{create_scheduler, start_grpc_service_with_listener};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::prelude::SessionConfig;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::codec::Codec;
use crate::addresses::{Executor, Scheduler};
use crate::functions;

/// The interval at which an executor reports that it is alive.
const HEARTBEAT_S: u64 = 3;
/// An executor that has reported nothing for this long counts as lost.
const LOST_AFTER_S: u64 = 12;
/// The interval at which the scheduler looks for lost executors.
const LOOK_S: u64 = 3;
/// How long queries wait for a new executor if all executors are lost.
const ALONE_S: u64 = 15;
/// The size of a thread's stack in bytes. Plans of long queries are deep, and the functions that
/// process a plan are recursive.
const STACK: usize = 32 << 20;

pub fn scheduler(args: &Scheduler) -> Result<(), String> {
    runtime(None)?.block_on(async {
        let said = |e| format!("--bind {}: {e}", args.bind);
        let listener = tokio::net::TcpListener::bind(args.bind).await.map_err(said)?;
        let address = listener.local_addr().map_err(said)?;
        let config = Arc::new(SchedulerConfig {
            bind_host: host(address.ip()),
            external_host: host(address.ip()),
            bind_port: address.port(),
            executor_timeout_seconds: LOST_AFTER_S,
            expire_dead_executor_interval_seconds: LOOK_S,
            no_executors_grace_period_seconds: ALONE_S,
            task_distribution: TaskDistributionPolicy::RoundRobin,
            override_session_builder: Some(Arc::new(state)),
            override_logical_codec: Some(Arc::new(Codec::default())),
            ..SchedulerConfig::default()
        });
        let in_words = |e: ballista_core::error::BallistaError| format!("the scheduler: {e}");
        let cluster = BallistaCluster::new_from_config(&config).await.map_err(in_words)?;
        let server = create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, config);
        let server = server.await.map_err(in_words)?;
        eprintln!("counterpoint: the scheduler listens on {address}");
        start_grpc_service_with_listener(listener, server).await.map_err(in_words)
    })
}

pub fn executor(args: &Executor) -> Result<(), String> {
    let threads = args
        .threads
        .map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let [data, tasks] = ports(args.bind)?;
    let state = state(SessionConfig::new()).map_err(|e| e.to_string())?;
    let host = host(args.bind.ip());
    let work = Work::new(&args.work_dir.clone().unwrap_or_else(std::env::temp_dir))?;
    let config = ExecutorProcessConfig {
        bind_host: host.clone(),
        external_host: Some(host.clone()),
        port: data,
        grpc_port: tasks,
        scheduler_host: args.scheduler.host.clone(),
        scheduler_port: args.scheduler.port,
        vcores: threads,
        work_dir: Some(work.0.display().to_string()),
        executor_heartbeat_interval_seconds: HEARTBEAT_S,
        memory_pool_size: args.memory.map(|bytes| bytes as u64),
        override_function_registry: Some(Arc::new(BallistaFunctionRegistry::from(&state))),
        override_logical_codec: Some(Arc::new(Codec::default())),
        ..ExecutorProcessConfig::default()
    };
    let health = config.health.clone();
    let scheduler = args.scheduler.clone();
    runtime(Some(threads))?.block_on(async {
        end_at_second_signal(&work.0).map_err(|e| format!("listen to signals: {e}"))?;
        tokio::spawn(async move {
            while !health.is_ready() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            eprintln!("counterpoint: the executor on {host}:{data} works for {scheduler}");
        });
        let done = start_executor_process(Arc::new(config)).await;
        done.map_err(|e| format!("the executor of {}: {e}", args.scheduler))
    })
}

/// Makes the second `SIGINT` or `SIGTERM` end this executor at once. After the first signal,
/// Ballista waits for the tasks of the executor, which may take a long time.
fn end_at_second_signal(work: &Path) -> std::io::Result<()> {
    let seen = Arc::new(AtomicUsize::new(0));
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let (mut signals, seen, work) = (signal(kind)?, Arc::clone(&seen), work.to_owned());
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if seen.fetch_add(1, Ordering::Relaxed) == 0 {
                    eprintln!(
                        "counterpoint: the executor ends after its tasks; a second signal ends it now"
                    );
                    continue;
                }
                let _ = std::fs::remove_dir_all(&work);
                std::process::exit(2);
            }
        });
    }
    Ok(())
}

fn state(config: SessionConfig) -> Result<SessionState, DataFusionError> {
    let mut state = default_session_builder(config)?;
    functions::register(&mut state)?;
    Ok(state)
}

/// Returns the text of an address as it is written before `:PORT`: an IPv6 address is in brackets.
fn host(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

fn runtime(threads: Option<usize>) -> Result<Runtime, String> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads);
    }
    builder.thread_stack_size(STACK).enable_all().build().map_err(|e| format!("start threads: {e}"))
}

/// Returns two ports of the executor: it hands out rows at the first, and accepts tasks at the
/// second. If `bind` has port 0, both are free ports that this function finds. Ballista gets only
/// the numbers, and opens the ports itself. If another program takes a port before Ballista opens
/// it, the executor fails to start.
fn ports(bind: SocketAddr) -> Result<[u16; 2], String> {
    if let Some(first) = Some(bind.port()).filter(|port| *port > 0) {
        let second = first.checked_add(1).ok_or("--bind: there is no port after this one")?;
        return Ok([first, second]);
    }
    let free = |ip: IpAddr| TcpListener::bind((ip, 0)).map_err(|e| format!("--bind {ip}: {e}"));
    // Both ports are open at the same time, so their numbers differ.
    let (data, tasks) = (free(bind.ip())?, free(bind.ip())?);
    let port = |of: &TcpListener| of.local_addr().map(|a| a.port()).map_err(|e| e.to_string());
    Ok([port(&data)?, port(&tasks)?])
}

/// The executor's folder for temporary files, which only this user may read. An executor that is
/// killed with `SIGKILL` leaves the folder behind.
struct Work(PathBuf);

impl Work {
    fn new(parent: &Path) -> Result<Self, String> {
        let parent = std::path::absolute(parent).map_err(|e| e.to_string())?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_nanos());
        let path = parent.join(format!("counterpoint-executor-{}-{now}", std::process::id()));
        // Creating the directory fails if a file or directory with this name exists.
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|e| format!("make {}: {e}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
