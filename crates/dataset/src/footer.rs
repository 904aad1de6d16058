//! Checks the footer of a Parquet file before the contents of the file are used.
//!
//! The JSON file of a part states how many rows each Parquet file of the part has, and which
//! members (recordings of one rank each) the part has. The footer must have the columns and types
//! of the table (optional columns may be absent), and the number of rows that the part states. The
//! smallest and the largest run, rank and recording id in the footer's statistics must be within
//! the range of the part's members. The rows themselves are not read here.
//!
//! The program `counterpoint-query` uses another version of the Parquet library, and includes this
//! source file as well.

use std::fs::File;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use dataset::Table;
use dataset::layout::{self, Member, Part};
use dataset::schema::Kind;
use parquet::basic::{ConvertedType, Repetition, Type};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

/// Returns why a file of a table does not match the description in its part. A panic of the Parquet
/// library counts as such a reason.
pub fn problem(path: &Path, table: Table, file: &layout::File, part: &Part) -> Option<String> {
    let found = catch_unwind(AssertUnwindSafe(|| check(path, table, file, part)));
    match found.unwrap_or_else(|_| Err("its footer cannot be read".to_owned())) {
        Ok(()) => None,
        Err(why) => Some(format!("{}: {why}", file.path)),
    }
}

fn check(path: &Path, table: Table, file: &layout::File, part: &Part) -> Result<(), String> {
    let opened = File::open(path).map_err(|e| e.to_string())?;
    let opened = SerializedFileReader::new(opened).map_err(|e| e.to_string())?;
    let found = opened.metadata();
    columns(found, table, part)?;
    let rows = found
        .row_groups()
        .iter()
        .try_fold(0u64, |sum, group| sum.checked_add(u64::try_from(group.num_rows()).ok()?));
    let said = u64::try_from(found.file_metadata().num_rows()).ok();
    if rows != Some(file.rows) || said != rows {
        let rows = rows.map_or("too many".to_owned(), |rows| rows.to_string());
        return Err(format!("it has {rows} rows, and its part says {}", file.rows));
    }
    for column in found.row_groups().iter().flat_map(|group| group.columns()) {
        let (from, length) = column.byte_range();
        if from.checked_add(length).is_none_or(|end| end > file.bytes) {
            return Err(format!("column {} is not inside of it", column.column_path().string()));
        }
    }
    whose(found, part)
}

fn columns(found: &ParquetMetaData, table: Table, part: &Part) -> Result<(), String> {
    let all = found.file_metadata().schema_descr().columns();
    let of_name = |name: &str| all.iter().find(|column| column.path().parts() == [name]);
    for column in table.columns() {
        match of_name(column.name) {
            // A file that an earlier version of the program wrote may lack this column.
            None if column.nullable => {}
            None => return Err(format!("it has no column {} of table {table}", column.name)),
            Some(own) if !is_of(own, column.kind, column.nullable) => {
                let expected = column.kind.name();
                return Err(format!("column {} of table {table} is not {expected}", column.name));
            }
            Some(_) => {}
        }
    }
    let counters: &[String] = if table == Table::Calls { &part.counters } else { &[] };
    let other = counters.iter().find(|name| {
        // The column must be nullable, because a rank of a merged part can lack this counter.
        of_name(name).is_some_and(|own| !is_of(own, Kind::Counter, true))
    });
    match other {
        Some(name) => Err(format!("column {name} of table {table} is no counter")),
        None => Ok(()),
    }
}

fn is_of(column: &ColumnDescriptor, kind: Kind, nullable: bool) -> bool {
    let own = (column.physical_type(), column.converted_type());
    let is_kind = match kind {
        Kind::Text => own == (Type::BYTE_ARRAY, ConvertedType::UTF8),
        Kind::Small => own == (Type::INT32, ConvertedType::NONE),
        Kind::Whole => own == (Type::INT64, ConvertedType::NONE),
        Kind::Counter => own == (Type::INT64, ConvertedType::UINT_64),
        Kind::Wide => {
            own == (Type::FIXED_LEN_BYTE_ARRAY, ConvertedType::DECIMAL)
                && (column.type_precision(), column.type_scale()) == (38, 0)
        }
    };
    let repetition = if nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    is_kind && column.self_type().get_basic_info().repetition() == repetition
}

/// Checks that the runs, ranks and recording ids in the footer's statistics are within the range of
/// the part's members. Missing statistics are not an error.
fn whose(found: &ParquetMetaData, part: &Part) -> Result<(), String> {
    let range = |of: &dyn Fn(&Member) -> Vec<u8>| -> Option<RangeInclusive<Vec<u8>>> {
        let all = || part.members.iter().map(of);
        Some(all().min()?..=all().max()?)
    };
    let ranks = part.members.iter().map(|member| i64::from(member.rank));
    let ranks = ranks.clone().min().zip(ranks.max());
    let runs = range(&|member| member.run.clone().into_bytes());
    let parts = range(&|member| member.part.clone().into_bytes());
    let (Some((first, last)), Some(runs), Some(parts)) = (ranks, runs, parts) else {
        return Err("its part has no recordings".to_owned());
    };
    let other = |name: &str| Err(format!("it has rows of a {name} that its part does not have"));
    for column in found.row_groups().iter().flat_map(|group| group.columns()) {
        let name = column.column_path().string();
        let is_inside = match &*name {
            "run" => texts(column, &runs),
            "part" => texts(column, &parts),
            "rank" => numbers(column).is_none_or(|(low, high)| first <= low && high <= last),
            _ => true,
        };
        if !is_inside {
            return other(&name);
        }
    }
    Ok(())
}

/// Returns whether the smallest and the largest text in the statistics of a column are in the
/// range. Statistics may contain only the beginning of a long text. Such texts are not compared.
fn texts(column: &ColumnChunkMetaData, range: &RangeInclusive<Vec<u8>>) -> bool {
    let Some(own) = column.statistics() else { return true };
    let low = own.min_bytes_opt().filter(|_| own.min_is_exact());
    let high = own.max_bytes_opt().filter(|_| own.max_is_exact());
    low.is_none_or(|low| low >= &range.start()[..])
        && high.is_none_or(|high| high <= &range.end()[..])
}

fn numbers(column: &ColumnChunkMetaData) -> Option<(i64, i64)> {
    let own = column.statistics()?;
    let number = |bytes: &[u8]| Some(i64::from(i32::from_le_bytes(bytes.try_into().ok()?)));
    Some((number(own.min_bytes_opt()?)?, number(own.max_bytes_opt()?)?))
}
