//! Registers the tables of a dataset, sets the limits on threads and memory, and runs a query.

use std::num::NonZeroUsize;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use dataset::schema::Kind;
use dataset::{Dataset, Table};

use crate::addresses::Place;
use crate::{cluster, functions};

/// If a query needs too much memory, the error names at most this many operators: those that use
/// the most memory.
const CONSUMERS_IN_ERRORS: NonZeroUsize = NonZeroUsize::new(5).expect("5 is not 0");

/// The threads and memory that a query may use, and where it runs.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The scheduler of the cluster that runs the query; `None` if this process runs it.
    pub cluster: Option<Place>,
    /// The number of threads, and of the parts (partitions) into which DataFusion divides rows.
    pub threads: usize,
    /// Bytes of memory for sorting, joining and grouping; `None` if there is no limit.
    pub memory: Option<usize>,
}

/// Parses a size in bytes. K, M or G after the number multiplies it by 1,024, 1,024² or 1,024³.
pub fn size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number = digits.parse::<usize>().ok().filter(|n| *n > 0);
    let bytes = number.and_then(|n| n.checked_mul(1 << shift));
    bytes.ok_or_else(|| "not a size like 512M or 4G".to_owned())
}

/// The columns and the rows of an answer.
pub type Answer = (SchemaRef, Vec<RecordBatch>);

pub fn run(dataset: &Dataset, sql: &str, limits: &Limits) -> Result<Answer, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(limits.threads)
        .enable_all()
        .build()
        .map_err(|e| format!("start {} threads: {e}", limits.threads))?;
    quietly(|| runtime.block_on(answer(dataset, sql, limits)))?.map_err(|e| in_words(&e, limits))
}

/// Calls `body`, which reads files that other people may have made. If a library panics because of
/// such a file, this returns an error and prints nothing.
pub fn quietly<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    std::panic::set_hook(hook);
    done.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        format!("a file cannot be read: {}", text.unwrap_or_else(|| "the library panicked".into()))
    })
}

async fn answer(dataset: &Dataset, sql: &str, limits: &Limits) -> Result<Answer, DataFusionError> {
    let config = SessionConfig::new()
        .with_target_partitions(limits.threads)
        // Small files are divided as well, so that tests with small files run the code for large
        // files.
        .with_repartition_file_min_size(0)
        .with_collect_statistics(false)
        .with_information_schema(true)
        .set_bool("datafusion.execution.parquet.schema_force_view_types", false)
        .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false);
    let session = match &limits.cluster {
        Some(at) => cluster::session(config, at)?,
        None => {
            let mut runtime = RuntimeEnvBuilder::new();
            if let Some(memory) = limits.memory {
                // The operators that can use temporary files share the memory evenly. With a pool
                // that gives memory to whoever asks first, a group-by in two threads failed: the
                // first thread took nearly all memory, and the second could not even read its
                // temporary files.
                let pool = TrackConsumersPool::new(FairSpillPool::new(memory), CONSUMERS_IN_ERRORS);
                runtime = runtime.with_memory_pool(Arc::new(pool));
            }
            SessionContext::new_with_config_rt(config, runtime.build_arc()?)
        }
    };
    functions::register(&mut *session.state_ref().write())?;
    for table in Table::ALL {
        session.register_table(table.name(), provider(dataset, table)?)?;
    }
    let only_reads =
        SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let frame = session.sql_with_options(sql, only_reads).await?;
    let schema = Arc::new(frame.schema().as_arrow().clone());
    let rows = match &limits.cluster {
        Some(at) => cluster::collect(frame, at).await?,
        None => frame.collect().await?,
    };
    Ok((schema, rows))
}

fn provider(dataset: &Dataset, table: Table) -> Result<Arc<dyn TableProvider>, DataFusionError> {
    let own = table.columns().map(|c| Field::new(c.name, data_type(c.kind), c.nullable));
    let mut fields: Vec<Field> = own.collect();
    if table == Table::Calls {
        // Ranks may have different counters. A counter that a file lacks is NULL.
        let mut counters: Vec<&String> =
            dataset.parts.iter().flat_map(|part| &part.counters).collect();
        counters.sort();
        counters.dedup();
        fields.extend(counters.iter().map(|name| Field::new(*name, DataType::UInt64, true)));
    }
    let schema = Arc::new(Schema::new(fields));
    let dir = std::path::absolute(&dataset.dir)?;
    let mut paths = Vec::new();
    for file in dataset.files(table) {
        // DataFusion gets a URL, because it treats some characters of a plain path as a pattern.
        let path = dir.join(&file.path);
        let url = url::Url::from_file_path(&path)
            .map_err(|()| DataFusionError::Execution(format!("{}: not a path", path.display())))?;
        paths.push(ListingTableUrl::try_new(url, None)?);
    }
    if paths.is_empty() {
        return Ok(Arc::new(EmptyTable::new(schema)));
    }
    let format = ParquetFormat::new().with_force_view_types(false);
    let options = ListingOptions::new(Arc::new(format)).with_file_extension("parquet");
    let config = ListingTableConfig::new_with_multi_paths(paths)
        .with_listing_options(options)
        .with_schema(schema);
    Ok(Arc::new(ListingTable::try_new(config)?))
}

fn data_type(kind: Kind) -> DataType {
    match kind {
        Kind::Text => DataType::Utf8,
        Kind::Small => DataType::Int32,
        Kind::Whole => DataType::Int64,
        Kind::Counter => DataType::UInt64,
        Kind::Wide => DataType::Decimal128(38, 0),
    }
}

/// Returns a message for an error of DataFusion, if possible without DataFusion's own words around
/// the cause.
fn in_words(error: &DataFusionError, limits: &Limits) -> String {
    let root = error.find_root();
    match (root, limits.memory) {
        (DataFusionError::ResourcesExhausted(why), Some(memory)) => {
            format!("the query needs more memory than --memory allows ({memory} bytes): {why}")
        }
        (DataFusionError::Execution(why), _) => match &limits.cluster {
            Some(at) => cluster::in_words(at, why),
            None => why.clone(),
        },
        _ => error.strip_backtrace(),
    }
}
