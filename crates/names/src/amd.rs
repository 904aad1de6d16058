//! AMD's own names for the counters of Zen 4 cores, as IREE's original call hook offered them.
//!
//! Source: AMD's "Processor Programming Reference for Family 19h Model 11h", section on core
//! performance monitor counters, with the spelling of perf's tables (Linux 6.12,
//! `tools/perf/pmu-events/arch/x86/amdzen4`). An event number has twelve bits, which are in two
//! places of the configuration: event[7:0] | umask << 8 | event[11:8] << 32. (The original hook
//! added umask · 256 to the event, which selects another counter if the event is above 0xff.)
//!
//! The original hook also had names that begin with `l3_`; they are left out. They count the cache
//! of a whole core complex and belong to another PMU (`amd_l3/…/`), which cannot count a single
//! thread. On the core's PMU their numbers mean something else.
//!
//! The numbers have this meaning only on family 19h, and Zen 3 does not have all of them. Elsewhere
//! the names are refused, because a number with another meaning gives a count that looks right.

use std::sync::OnceLock;

use model::{PerfAttr, Source, Unit};

use crate::cause::NameCause;
use crate::error::NameErrorKind;
use crate::source::{Entry, NameSource, Resolved, Trouble};
use crate::syntax::Head;
use machine::Machine;

const TYPE_RAW: u32 = 4;
const FAMILY: &str = "25";
/// Events that Zen 3, the older half of the family, does not have: those that libpfm4 4.13 has in
/// the table `amd64_fam19h_zen4` but not in `amd64_fam19h_zen3`.
const NOT_ON_ZEN3: [u16; 13] =
    [0x02, 0x08, 0x0a, 0x0b, 0x0c, 0x0d, 0xd6, 0x120, 0x1a0, 0x1c1, 0x1c2, 0x1c8, 0x1c9];

/// A unit mask, and what it appends to the name and to the description of its event.
type Mask = (u8, &'static str, &'static str);

/// The counters of one event.
struct Family {
    event: u16,
    name: &'static str,
    unit: Unit,
    what: &'static str,
    /// The unit masks. Empty: the event has none, and is one counter.
    masks: &'static [Mask],
}

const fn count(
    event: u16,
    name: &'static str,
    what: &'static str,
    masks: &'static [Mask],
) -> Family {
    Family { event, name, unit: Unit::Count, what, masks }
}

const fn cycles(
    event: u16,
    name: &'static str,
    what: &'static str,
    masks: &'static [Mask],
) -> Family {
    Family { event, name, unit: Unit::Cycles, what, masks }
}

/// Unit masks by where the data came from.
const FILLS: &[Mask] = &[
    (0x01, "local_l2", "the core's L2"),
    (0x02, "local_ccx", "the L3 or another L2 of the core complex"),
    (0x04, "near_cache", "a cache of another core complex, same node"),
    (0x08, "dram_io_near", "memory or devices of the same node"),
    (0x10, "far_cache", "a cache of another node"),
    (0x40, "dram_io_far", "memory or devices of another node"),
    (0x80, "alternate_memories", "extension memory (CXL)"),
];
const ALL_FILLS: Mask = (0xff, "all", "anywhere");
/// The same for prefetches, as in perf's tables: without the reserved bit 5.
const ALL_PREFETCH_FILLS: Mask = (0xdf, "all", "anywhere");

/// Unit masks by the prefetcher of the L2 or L1.
const PREFETCHERS: &[Mask] = &[
    (0x01, "l2_stream", "L2 stream"),
    (0x02, "l2_next_line", "L2 next line"),
    (0x04, "l2_up_down", "L2 up/down"),
    (0x08, "l2_burst", "L2 burst"),
    (0x10, "l2_stride", "L2 stride"),
    (0x20, "l1_stream", "L1 stream"),
    (0x40, "l1_stride", "L1 stride"),
    (0x80, "l1_region", "L1 region"),
    (0xff, "all", "any"),
];

#[rustfmt::skip]
const FAMILIES: &[Family] = &[
    count(0x8b, "bp_l2_btb_correct", "L2 branch predictor overrode the first prediction", &[]),
    count(0x8e, "bp_dyn_ind_pred", "indirect branches predicted by the indirect predictor", &[]),
    count(0x91, "bp_de_redirect", "branch targets corrected by the decoder", &[]),
    count(0x84, "bp_l1_tlb_miss_l2_tlb_hit", "instruction fetches that missed the L1 TLB and hit the L2 TLB", &[]),
    count(0x85, "bp_l1_tlb_miss_l2_tlb_miss", "instruction fetches that missed both TLBs: ", &[
        (0x01, "if4k", "4 KiB pages"), (0x02, "if2m", "2 MiB pages"), (0x04, "if1g", "1 GiB pages"),
        (0x08, "coalesced_4k", "coalesced pages"), (0x0f, "all", "all pages"),
    ]),
    count(0x94, "bp_l1_tlb_fetch_hit", "instruction fetches that hit the L1 TLB: ", &[
        (0x01, "if4k", "4 KiB pages"), (0x02, "if2m", "2 MiB pages"), (0x04, "if1g", "1 GiB pages"),
        (0x07, "all", "all pages"),
    ]),
    count(0xc0, "ex_ret_instr", "retired instructions", &[]),
    count(0xc1, "ex_ret_ops", "retired macro-ops", &[]),
    count(0xc2, "ex_ret_brn", "retired branches, exceptions and interrupts too", &[]),
    count(0xc3, "ex_ret_brn_misp", "retired branches that were mispredicted", &[]),
    count(0xc4, "ex_ret_brn_tkn", "retired branches that were taken", &[]),
    count(0xc5, "ex_ret_brn_tkn_misp", "retired branches that were taken and mispredicted", &[]),
    count(0xc6, "ex_ret_brn_far", "retired far control transfers, exceptions and interrupts too", &[]),
    count(0xc8, "ex_ret_near_ret", "retired near returns", &[]),
    count(0xc9, "ex_ret_near_ret_mispred", "retired near returns that were mispredicted", &[]),
    count(0xca, "ex_ret_brn_ind_misp", "retired indirect branches that were mispredicted", &[]),
    count(0xcc, "ex_ret_ind_brch_instr", "retired indirect branches", &[]),
    count(0xd1, "ex_ret_cond", "retired conditional branches", &[]),
    count(0x1c7, "ex_ret_msprd_brnch_instr_dir_msmtch", "retired branches whose direction was mispredicted", &[]),
    count(0x1c8, "ex_ret_uncond_brnch_instr_mispred", "retired unconditional indirect branches that were mispredicted", &[]),
    count(0x1c9, "ex_ret_uncond_brnch_instr", "retired unconditional branches", &[]),
    count(0x1c1, "ex_ret_ucode_instr", "retired microcoded instructions", &[]),
    count(0x1c2, "ex_ret_ucode_ops", "retired microcode ops", &[]),
    count(0x1d0, "ex_ret_fused_instr", "retired fused instructions", &[]),
    count(0x1cf, "ex_tagged_ibs_ops", "ops tagged by instruction-based sampling", &[
        (0x01, "ibs_tagged_ops", ""), (0x02, "ibs_tagged_ops_ret", " that retired"),
    ]),
    cycles(0xd3, "ex_div_busy", "cycles in which the divider was busy", &[]),
    count(0xd4, "ex_div_count", "divide ops", &[]),
    cycles(0xd6, "ex_no_retire", "cycles in which nothing retired, because ", &[
        (0x01, "empty", "no op was there"), (0x02, "not_complete", "the oldest op was not executed yet"),
        (0x08, "other", "of traps, faults and other breaks"), (0x10, "thread_not_selected", "the other thread was selected"),
        (0xa2, "load_not_complete", "the oldest op waited for a load"), (0x1b, "all", "of anything"),
    ]),
    count(0xaa, "de_src_op_disp", "ops dispatched, from ", &[
        (0x01, "decoder", "the decoder"), (0x02, "op_cache", "the op cache"), (0x07, "all", "anywhere"),
    ]),
    count(0x1a0, "de_no_dispatch_per_slot", "dispatch slots that stayed empty, because ", &[
        (0x01, "no_ops_from_frontend", "the front end supplied no op"), (0x1e, "backend_stalls", "the back end had no room"),
        (0x60, "smt_contention", "the other thread of the core dispatched"),
    ]),
    count(0x24, "ls_bad_status2", "loads held up by an older store that could not be forwarded", &[(0x02, "stli_other", "")]),
    count(0x25, "ls_locks", "retired lock instructions that locked the bus", &[(0x01, "bus_lock", "")]),
    count(0x26, "ls_ret_cl_flush", "retired CLFLUSH instructions", &[]),
    count(0x27, "ls_ret_cpuid", "retired CPUID instructions", &[]),
    count(0x29, "ls_dispatch", "ops dispatched to the load-store unit: ", &[
        (0x01, "ld_dispatch", "loads"), (0x02, "store_dispatch", "stores"), (0x04, "ld_st_dispatch", "loads and stores in one"),
    ]),
    count(0x2b, "ls_smi_rx", "system management interrupts", &[]),
    count(0x2c, "ls_int_taken", "interrupts taken", &[]),
    count(0x35, "ls_stlf", "loads served by forwarding from a store", &[]),
    count(0x37, "ls_st_commit_cancel2", "uncacheable stores put off because the buffer was full", &[(0x01, "st_commit_cancel_wcb_full", "")]),
    count(0x41, "ls_mab_alloc", "miss buffers taken for ", &[
        (0x3f, "load_store_allocations", "loads and stores"), (0x40, "hardware_prefetcher_allocations", "hardware prefetches"),
        (0x7f, "all_allocations", "anything"),
    ]),
    count(0x43, "ls_dmnd_fills_from_sys", "L1 data cache lines filled on demand, from ", FILLS),
    count(0x43, "ls_dmnd_fills_from_sys", "L1 data cache lines filled on demand, from ", &[ALL_FILLS]),
    count(0x44, "ls_any_fills_from_sys", "L1 data cache lines filled, from ", FILLS),
    count(0x44, "ls_any_fills_from_sys", "L1 data cache lines filled, from ", &[
        (0x03, "local_all", "caches of the core complex"), (0x14, "remote_cache", "caches of other core complexes"),
        (0x48, "dram_io_all", "memory or devices of any node"), (0x48, "all_dram_io", "memory or devices of any node"),
        (0x50, "far_all", "another node"), ALL_FILLS,
    ]),
    count(0x45, "ls_l1_d_tlb_miss", "data accesses that missed the L1 TLB ", &[
        (0x01, "tlb_reload_4k_l2_hit", "and hit the L2 TLB: 4 KiB pages"), (0x02, "tlb_reload_coalesced_page_hit", "and hit the L2 TLB: coalesced pages"),
        (0x04, "tlb_reload_2m_l2_hit", "and hit the L2 TLB: 2 MiB pages"), (0x08, "tlb_reload_1g_l2_hit", "and hit the L2 TLB: 1 GiB pages"),
        (0x10, "tlb_reload_4k_l2_miss", "and the L2 TLB: 4 KiB pages"), (0x20, "tlb_reload_coalesced_page_miss", "and the L2 TLB: coalesced pages"),
        (0x40, "tlb_reload_2m_l2_miss", "and the L2 TLB: 2 MiB pages"), (0x80, "tlb_reload_1g_l2_miss", "and the L2 TLB: 1 GiB pages"),
        (0xf0, "all_l2_miss", "and the L2 TLB: all pages"), (0xff, "all", ": all pages"),
    ]),
    count(0x47, "ls_misal_loads", "loads across a boundary of ", &[(0x01, "ma64", "64 bytes"), (0x02, "ma4k", "4 KiB")]),
    count(0x4b, "ls_pref_instr_disp", "software prefetches dispatched: ", &[
        (0x01, "prefetch", "PREFETCHT0, T1 and T2"), (0x02, "prefetch_w", "PREFETCHW"), (0x04, "prefetch_nta", "PREFETCHNTA"), (0x07, "all", "all"),
    ]),
    count(0x52, "ls_inef_sw_pref", "software prefetches in vain: ", &[
        (0x01, "data_pipe_sw_pf_dc_hit", "the line was there"), (0x02, "mab_mch_cnt", "the line was on its way"), (0x03, "all", "both"),
    ]),
    count(0x59, "ls_sw_pf_dc_fills", "L1 data cache lines filled by software prefetches, from ", FILLS),
    count(0x59, "ls_sw_pf_dc_fills", "L1 data cache lines filled by software prefetches, from ", &[ALL_PREFETCH_FILLS]),
    count(0x5a, "ls_hw_pf_dc_fills", "L1 data cache lines filled by hardware prefetches, from ", FILLS),
    count(0x5a, "ls_hw_pf_dc_fills", "L1 data cache lines filled by hardware prefetches, from ", &[ALL_PREFETCH_FILLS]),
    count(0x5f, "ls_alloc_mab_count", "miss buffers in use, summed over cycles", &[]),
    cycles(0x76, "ls_not_halted_cyc", "cycles not halted", &[]),
    cycles(0x120, "ls_not_halted_p0_cyc", "cycles not halted, at the base frequency", &[(0x01, "p0_freq_cyc", "")]),
    count(0x78, "ls_tlb_flush", "TLB flushes", &[(0xff, "all", "")]),
    count(0x60, "l2_request_g1", "requests to the L2: ", &[
        (0x01, "group2", "uncacheable and rare ones"), (0x02, "l2_hw_pf", "of hardware prefetchers into L2"), (0x04, "prefetch_l2_cmd", "prefetches into L2"),
        (0x08, "change_to_x", "to make a line writable"), (0x10, "cacheable_ic_read", "instruction reads"), (0x20, "ls_rd_blk_c_s", "shared data reads"),
        (0x40, "rd_blk_x", "data stores"), (0x80, "rd_blk_l", "data reads, prefetches too"), (0xe8, "all_dc", "of the L1 data cache"),
        (0xf9, "all_no_prefetch", "all but prefetches"), (0xff, "all", "all"),
    ]),
    count(0x64, "l2_cache_req_stat", "requests of the core to the L2: ", &[
        (0x01, "ic_fill_miss", "instructions, missed"), (0x02, "ic_fill_hit_s", "instructions, hit a shared line"), (0x04, "ic_fill_hit_x", "instructions, hit a writable line"),
        (0x06, "ic_hit_in_l2", "instructions, hit"), (0x07, "ic_access_in_l2", "instructions"), (0x08, "ls_rd_blk_c", "data, missed"),
        (0x09, "ic_dc_miss_in_l2", "instructions and data, missed"), (0x10, "ls_rd_blk_x", "data stores, hit"), (0x20, "ls_rd_blk_l_hit_s", "data reads, hit a shared line"),
        (0x40, "ls_rd_blk_l_hit_x", "data reads, hit a writable line"), (0x80, "ls_rd_blk_cs", "shared data reads, hit"), (0xf0, "dc_hit_in_l2", "data, hit"),
        (0xf6, "ic_dc_hit_in_l2", "instructions and data, hit"), (0xf8, "dc_access_in_l2", "data"), (0xff, "all", "all"),
    ]),
    count(0x70, "l2_pf_hit_l2", "prefetches that hit the L2, by prefetcher: ", PREFETCHERS),
    count(0x71, "l2_pf_miss_l2_hit_l3", "prefetches that missed the L2 and hit the L3, by prefetcher: ", PREFETCHERS),
    count(0x72, "l2_pf_miss_l2_l3", "prefetches that missed L2 and L3, by prefetcher: ", PREFETCHERS),
    count(0x82, "ic_cache_fill_l2", "instruction cache lines filled from the L2", &[]),
    count(0x83, "ic_cache_fill_sys", "instruction cache lines filled from beyond the L2", &[]),
    count(0x18e, "ic_tag_hit_miss", "instruction cache ", &[
        (0x07, "instruction_cache_hit", "hits"), (0x18, "instruction_cache_miss", "misses"), (0x1f, "all_instruction_cache_accesses", "accesses"),
    ]),
    count(0x28f, "op_cache_hit_miss", "op cache ", &[
        (0x03, "op_cache_hit", "hits"), (0x04, "op_cache_miss", "misses"), (0x07, "all_op_cache_accesses", "accesses"),
    ]),
    count(0x02, "fp_ret_x87_fp_ops", "retired x87 operations: ", &[
        (0x01, "add_sub_ops", "additions, subtractions"), (0x02, "mul_ops", "multiplications"), (0x04, "div_sqrt_ops", "divisions, square roots"), (0x07, "all", "all"),
    ]),
    count(0x03, "fp_ret_sse_avx_ops", "retired SSE and AVX floating-point operations: ", &[
        (0x01, "add_sub_flops", "additions, subtractions"), (0x02, "mult_flops", "multiplications"), (0x04, "div_flops", "divisions, square roots"),
        (0x08, "mac_flops", "multiply-accumulates, two each"), (0x10, "bfloat_mac_flops", "bfloat16 multiply-accumulates, two each"), (0x1f, "all", "all"),
    ]),
    count(0x05, "fp_retired_ser_ops", "retired serializing ops: ", &[
        (0x01, "x87_ctrl_ret", "x87 control word"), (0x02, "x87_bot_ret", "x87, waiting for all older ones"), (0x04, "sse_ctrl_ret", "SSE control word"),
        (0x08, "sse_bot_ret", "SSE, waiting for all older ones"), (0x0f, "all", "all"),
    ]),
    count(0x08, "fp_ops_retired_by_width", "retired floating-point ops: ", &[
        (0x01, "x87_uops_retired", "x87"), (0x02, "mmx_uops_retired", "MMX"), (0x04, "scalar_uops_retired", "scalar"), (0x08, "pack_128_uops_retired", "128 bits"),
        (0x10, "pack_256_uops_retired", "256 bits"), (0x20, "pack_512_uops_retired", "512 bits"), (0x3f, "all", "all"),
    ]),
    count(0x0e, "fp_disp_faults", "floating-point dispatch faults: ", &[
        (0x01, "x87_fill_fault", "x87 fills"), (0x02, "xmm_fill_fault", "XMM fills"), (0x04, "ymm_fill_fault", "YMM fills"), (0x08, "ymm_spill_fault", "YMM spills"),
        (0x0e, "sse_avx_all", "SSE and AVX"), (0x0f, "all", "all"),
    ]),
];

/// Events whose unit mask has a code for a kind of operation in each half: four bits for one class
/// of ops, and four bits for the other.
struct Halves {
    event: u16,
    name: &'static str,
    what: &'static str,
    /// For the low and for the high half: name and description of the class, and its codes.
    classes: [(&'static str, &'static str, &'static str); 2],
}

/// The codes of a class as hexadecimal digits, which are places in [`FLOAT`] or [`INTEGER`].
#[rustfmt::skip]
const HALVES: &[Halves] = &[
    Halves { event: 0x0a, name: "fp_ops_retired_by_type", what: "floating-point", classes: [
        ("scalar", "scalar", "123456789ef"), ("vector", "vector", "123456789bdef"),
    ] },
    Halves { event: 0x0b, name: "sse_avx_ops_retired", what: "integer", classes: [
        ("mmx", "MMX", "123479abcdef"), ("sse_avx", "SSE and AVX", "123456789abcdef"),
    ] },
    Halves { event: 0x0c, name: "fp_pack_ops_retired", what: "packed floating-point", classes: [
        ("fp128", "128-bit", "123456789bdef"), ("fp256", "256-bit", "123456789bdef"),
    ] },
    Halves { event: 0x0d, name: "packed_int_op_type", what: "packed integer", classes: [
        ("int128", "128-bit", "123456789abcdef"), ("int256", "256-bit", "123479abcdef"),
    ] },
];

/// Names of operations by code, from 1.
const FLOAT: [&str; 15] = [
    "add", "sub", "mul", "mac", "div", "sqrt", "cmp", "cvt", "blend", "mov", "shuffle", "pack",
    "logical", "other", "all",
];
/// Names of operations by code, from 1, for the events 0x0b and 0x0d.
const INTEGER: [&str; 15] = [
    "add", "sub", "mul", "mac", "aes", "sha", "cmp", "clm", "shift", "mov", "shuffle", "pack",
    "logical", "other", "all",
];

/// One counter of the table.
struct Known {
    name: String,
    event: u16,
    config: u64,
    unit: Unit,
    description: String,
}

fn config(event: u16, mask: u8) -> u64 {
    let event = u64::from(event);
    event & 0xff | u64::from(mask) << 8 | (event >> 8) << 32
}

fn table() -> &'static [Known] {
    static TABLE: OnceLock<Vec<Known>> = OnceLock::new();
    TABLE.get_or_init(make_table)
}

fn make_table() -> Vec<Known> {
    let mut table = Vec::new();
    for family in FAMILIES {
        let mut push = |suffix: &str, mask, words: &str| {
            table.push(Known {
                name: format!("{}{suffix}", family.name),
                event: family.event,
                config: config(family.event, mask),
                unit: family.unit,
                description: format!("{}{words}", family.what),
            });
        };
        if family.masks.is_empty() {
            push("", 0, "");
        }
        for (mask, name, words) in family.masks {
            push(&format!(".{name}"), *mask, words);
        }
    }
    for halves in HALVES {
        let operations = if halves.event & 1 == 0 { FLOAT } else { INTEGER };
        let mut push = |name: String, mask, words: String| {
            table.push(Known {
                name: format!("{}.{name}", halves.name),
                event: halves.event,
                config: config(halves.event, mask),
                unit: Unit::Count,
                description: format!("retired {words}"),
            });
        };
        for (shift, (class, words, codes)) in [0, 4].into_iter().zip(halves.classes) {
            for code in codes.chars().filter_map(|c| c.to_digit(16)) {
                let operation = operations.get(code as usize - 1).copied().unwrap_or("other");
                let words = format!("{words} {} ops: {operation}", halves.what);
                push(format!("{class}_{operation}"), (code as u8) << shift, words);
            }
        }
        push("all".into(), 0xff, format!("{} ops: all", halves.what));
    }
    table
}

/// Whether a model of family 19h is Zen 3: 00h to 0fh, 2xh, 4xh and 5xh (perf's `mapfile.csv`).
fn is_zen3(model: &str) -> bool {
    model.parse::<u32>().is_ok_and(|model| matches!(model >> 4, 0 | 2 | 4 | 5))
}

/// The event of a PAPI preset for floating-point operations on this processor; `None` if it has no
/// such event. It is event 0x03 since Zen, but the unit masks differ: the first generation has one
/// for each precision, later ones have one for each operation, and on Zen 4 the one for bfloat16 is
/// left out. Kernels before 5.6 count it wrongly: it can grow by more than 15 in a cycle, and they
/// do not combine two counters for it.
///
/// Sources: `papi_events.csv` of PAPI for Zen 1 to 3 (RETIRED_SSE_AVX_OPERATIONS,
/// RETIRED_SSE_AVX_FLOPS:ANY), libpfm4 4.13 for Zen 4, `amdzen5/floating-point.json` of Linux 6.12
/// for Zen 5; models as in the kernel's `bsp_init_amd` (Linux 6.18).
pub(crate) fn papi(preset: &str, machine: &Machine) -> Option<Resolved> {
    let field = |key| machine.field("proc/cpuinfo", key);
    let number = |key| field(key)?.parse::<u32>().ok();
    let vendor = field("vendor_id")?;
    let (family, model) = (number("cpu family")?, number("model")?);
    let mask = match (vendor.as_str(), family, model, preset) {
        ("AuthenticAMD", 0x17, 0..=0x2f, _) | ("HygonGenuine", 0x18, _, _) => match preset {
            "PAPI_FP_OPS" => 0xff,
            "PAPI_SP_OPS" => 0x0f,
            "PAPI_DP_OPS" => 0xf0,
            _ => return None,
        },
        ("AuthenticAMD", 0x17, _, "PAPI_FP_OPS") => 0x0f,
        ("AuthenticAMD", 0x19, _, "PAPI_FP_OPS") if is_zen3(&model.to_string()) => 0x0f,
        ("AuthenticAMD", 0x19, _, "PAPI_FP_OPS") => 0x1f,
        ("AuthenticAMD", 0x1a, 0..=0x4f | 0x60..=0x7f, "PAPI_FP_OPS") => 0x0f,
        _ => return None,
    };
    let attr = PerfAttr { kind: TYPE_RAW, config: config(0x03, mask), ..PerfAttr::default() };
    Some(Resolved::new(Source::Perf(attr), Unit::Count))
}

/// [`NameSource`] of AMD's names.
pub(crate) struct Amd(pub Machine);

impl NameSource for Amd {
    fn resolve(&self, head: &Head) -> Option<Result<Vec<Resolved>, Trouble>> {
        let Head::Word(word) = head else { return None };
        let known = table().iter().find(|k| k.name == *word)?;
        let field = |key| self.0.field("proc/cpuinfo", key).unwrap_or_default();
        let (vendor, family) = (field("vendor_id"), field("cpu family"));
        let here = match (vendor.as_str(), family.as_str()) {
            ("AuthenticAMD", FAMILY) if !is_zen3(&field("model")) => Ok(()),
            ("AuthenticAMD", FAMILY) if !NOT_ON_ZEN3.contains(&known.event) => Ok(()),
            ("AuthenticAMD", FAMILY) => Err("Zen 3".to_owned()),
            ("", _) => Err("of an unknown vendor".to_owned()),
            _ => Err(format!("{vendor} family {family}")),
        };
        if let Err(here) = here {
            let problem = format!(
                "this is a counter of AMD's Zen 4 (family 19h), but this processor is {here}"
            );
            let trouble = Trouble::new(NameErrorKind::Value { text: word.clone(), problem });
            return Some(Err(trouble.because(NameCause::OtherProcessor)));
        }
        let attr = PerfAttr { kind: TYPE_RAW, config: known.config, ..PerfAttr::default() };
        Some(Ok(vec![Resolved::new(Source::Perf(attr), known.unit)]))
    }

    fn entries(&self) -> Vec<Entry> {
        let entry = |k: &Known| Entry::new(&*k.name, "AMD", k.unit, &*k.description);
        table().iter().map(entry).collect()
    }
}
