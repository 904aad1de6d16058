//! Translates names of PAPI's component `cuda` into counters of CUPTI:
//!
//! | typed | CUPTI's name | device |
//! |---|---|---|
//! | `cuda:::dram__bytes_read.sum:device=1` | `dram__bytes_read.sum` | 1 |
//! | `cuda:::dram__bytes_read:stat=sum:device=0` (PAPI 7.2) | `dram__bytes_read.sum` | 0 |
//! | `cuda:::event:elapsed_cycles_sm:device=0` | `sm__cycles_elapsed.sum` | 0 |
//!
//! Without `device=`, the device is 0, as in PAPI. Events are counters of CUPTI's former interface,
//! which devices with compute capability 7.5 or later do not support. The manual of Nsight
//! Compute's command line, in its section *Event Comparison*, lists the counters that replace each
//! event. [`EVENTS`] contains the events with exactly one such counter.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// CUPTI's name.
    pub name: String,
    pub device: u32,
}

const PREFIX: &str = "cuda:::";

/// Events of CUPTI's former interface, each with the counter that replaces it.
#[rustfmt::skip]
pub const EVENTS: [(&str, &str); 34] = [
    ("active_cycles", "sm__cycles_active.sum"),
    ("active_cycles_pm", "sm__cycles_active.sum"),
    ("active_cycles_sys", "sys__cycles_active.sum"),
    ("active_warps", "sm__warps_active.sum"),
    ("active_warps_pm", "sm__warps_active.sum"),
    ("atom_count", "smsp__inst_executed_op_generic_atom_dot_alu.sum"),
    ("elapsed_cycles_pm", "sm__cycles_elapsed.sum"),
    ("elapsed_cycles_sm", "sm__cycles_elapsed.sum"),
    ("elapsed_cycles_sys", "sys__cycles_elapsed.sum"),
    ("fb_subp0_read_sectors", "dram__sectors_read.sum"),
    ("fb_subp1_read_sectors", "dram__sectors_read.sum"),
    ("fb_subp0_write_sectors", "dram__sectors_write.sum"),
    ("fb_subp1_write_sectors", "dram__sectors_write.sum"),
    ("global_atom_cas", "smsp__inst_executed_op_generic_atom_dot_cas.sum"),
    ("gred_count", "smsp__inst_executed_op_global_red.sum"),
    ("inst_executed", "sm__inst_executed.sum"),
    ("inst_issued0", "smsp__issue_inst0.sum"),
    ("inst_issued1", "sm__inst_issued.sum"),
    ("not_predicated_off_thread_inst_executed", "smsp__thread_inst_executed_pred_on.sum"),
    ("sm_cta_launched", "sm__ctas_launched.sum"),
    ("shared_load", "smsp__inst_executed_op_shared_ld.sum"),
    ("shared_store", "smsp__inst_executed_op_shared_st.sum"),
    ("generic_load", "smsp__inst_executed_op_generic_ld.sum"),
    ("generic_store", "smsp__inst_executed_op_generic_st.sum"),
    ("global_load", "smsp__inst_executed_op_global_ld.sum"),
    ("global_store", "smsp__inst_executed_op_global_st.sum"),
    ("local_load", "smsp__inst_executed_op_local_ld.sum"),
    ("local_store", "smsp__inst_executed_op_local_st.sum"),
    ("shared_atom", "smsp__inst_executed_op_shared_atom.sum"),
    ("shared_ld_bank_conflict", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"),
    ("shared_st_bank_conflict", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"),
    ("thread_inst_executed", "smsp__thread_inst_executed.sum"),
    ("l2_subp0_read_sector_misses", "lts__t_sectors_op_read_lookup_miss.sum"),
    ("warps_launched", "smsp__warps_launched.sum"),
];

/// Returns the counter that a name of PAPI means.
///
/// # Errors
/// The error says what is wrong with the name.
pub fn parse(typed: &str) -> Result<Counter, String> {
    let wrong = |why: &str| Err(format!("{typed}: {why}"));
    let Some(rest) = typed.trim().strip_prefix(PREFIX) else {
        return wrong("a counter of this device begins with cuda:::");
    };
    let mut device = 0;
    let mut statistic = None;
    let mut words = Vec::new();
    for part in rest.split(':') {
        match part.split_once('=') {
            Some(("device", number)) => match number.parse() {
                Ok(number) => device = number,
                Err(_) => return wrong("device= is followed by the number of a device"),
            },
            Some(("stat", name)) => statistic = Some(name),
            Some((key, _)) => return wrong(&format!("{key}= is not known; device= and stat= are")),
            None => words.push(part),
        }
    }
    let name = match words[..] {
        ["event", event] => match EVENTS.iter().find(|(known, _)| *known == event) {
            Some((_, name)) => (*name).to_owned(),
            None => {
                return wrong(
                    "CUPTI has no events any more; `ncu --query-metrics` lists the counters, which \
                     are named cuda:::NAME:device=N",
                );
            }
        },
        ["metric", _] => {
            return wrong(
                "CUPTI has no metrics of this kind any more; `ncu --query-metrics` lists the \
                 counters, which are named cuda:::NAME:device=N",
            );
        }
        [name] if is_name(name) => match statistic {
            Some(statistic) if is_name(statistic) => format!("{name}.{statistic}"),
            Some(_) => return wrong("stat= is followed by avg, max, min or sum"),
            None => name.to_owned(),
        },
        _ => return wrong("expected cuda:::NAME:device=N"),
    };
    Ok(Counter { name, device })
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    !text.is_empty() && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_papi_are_counters_of_cupti() {
        for (typed, name, device) in [
            // The default counter of TVM's own collector for PAPI.
            ("cuda:::event:elapsed_cycles_sm:device=0", "sm__cycles_elapsed.sum", 0),
            // Spellings from PAPI's own tests, of versions before 7.2 and from 7.2 on.
            ("cuda:::dram__bytes_read.sum:device=1", "dram__bytes_read.sum", 1),
            ("cuda:::sm__cycles_elapsed:stat=max:device=0", "sm__cycles_elapsed.max", 0),
            ("cuda:::smsp__warps_launched.sum", "smsp__warps_launched.sum", 0),
            (
                "cuda:::sm__warps_active.avg.pct_of_peak_sustained_active:device=12",
                "sm__warps_active.avg.pct_of_peak_sustained_active",
                12,
            ),
        ] {
            let expected = Counter { name: name.to_owned(), device };
            assert_eq!(parse(typed), Ok(expected), "{typed}");
        }
        for (typed, why) in [
            ("rocm:::SQ_WAVES:device=0", "begins with cuda:::"),
            ("cuda:::event:no_such:device=0", "CUPTI has no events any more"),
            ("cuda:::metric:ipc:device=0", "CUPTI has no metrics of this kind"),
            ("cuda:::a__b.sum:device=x", "the number of a device"),
            ("cuda:::a__b.sum:gpu=0", "gpu= is not known"),
            ("cuda:::a__b:stat=", "stat= is followed by"),
            ("cuda:::", "expected cuda:::NAME:device=N"),
            ("cuda:::a b", "expected cuda:::NAME:device=N"),
        ] {
            let error = parse(typed).expect_err(typed);
            assert!(error.contains(why) && error.starts_with(typed), "{error}");
        }
    }
}
