//! Compares AMD's names with the tables of libpfm4 (`amd.txt` gives the version), on made-up
//! machines.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use machine::Machine;
use model::{PerfAttr, Source};
use names::Resolver;
use testkit::counting::Tree;

fn machine(vendor: &str, family: u32, model: u32) -> (Tree, Machine) {
    let tree = Tree::new("amd");
    let text = format!("vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n");
    tree.file("proc/cpuinfo", &text);
    let machine = Machine::at(&tree.root);
    (tree, machine)
}

fn expected() -> BTreeMap<&'static str, u64> {
    let lines = include_str!("amd.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut fields = line.split(' ');
            let (name, config) = (fields.next().unwrap(), fields.next().unwrap());
            (name, u64::from_str_radix(config.strip_prefix("0x").unwrap(), 16).unwrap())
        })
        .collect()
}

#[test]
fn every_name_is_what_libpfm4_says() {
    let (_tree, zen4) = machine("AuthenticAMD", 25, 0x61);
    let resolver = Resolver::new(&zen4);
    let expected = expected();
    let entries: Vec<_> =
        resolver.catalogue().into_iter().filter(|entry| entry.source == "AMD").collect();
    assert_eq!(entries.len(), expected.len());
    for entry in entries {
        let counters = resolver.resolve(&entry.name).unwrap_or_else(|e| panic!("{e}"));
        let [counter] = counters.as_slice() else { panic!("{counters:?}") };
        let config = expected[entry.name.as_str()];
        let attr = PerfAttr { kind: 4, config, ..PerfAttr::default() };
        assert_eq!(counter.source, Source::Perf(attr), "{}", entry.name);
        assert_eq!((&counter.name, counter.unit), (&entry.name, entry.unit));
        assert!(!entry.description.is_empty() && !entry.description.ends_with(": "), "{entry:?}");
    }
}

/// The bits of an event are where the manual says: event[7:0] | umask << 8 | event[11:8] << 32.
#[test]
fn the_twelve_bits_of_an_event_are_held_apart() {
    let expected = expected();
    for (name, event, mask) in [
        ("ls_any_fills_from_sys.all_dram_io", 0x44, 0x48),
        ("ex_ret_instr", 0xc0, 0),
        ("ex_ret_msprd_brnch_instr_dir_msmtch", 0x1c7, 0),
        ("ic_tag_hit_miss.instruction_cache_miss", 0x18e, 0x18),
        ("op_cache_hit_miss.op_cache_miss", 0x28f, 0x04),
    ] {
        let config = (event & 0xff) | mask << 8 | (event >> 8) << 32;
        assert_eq!(expected[name], config, "{name}");
    }
}

#[test]
fn modifiers_work() {
    let (_tree, zen4) = machine("AuthenticAMD", 25, 0x11);
    let counters = Resolver::new(&zen4).resolve("ex_ret_brn:u,ls_mab_alloc.all_allocations:k");
    let counters = counters.unwrap();
    let [user, kernel] = [0, 1].map(|i| match &counters[i].source {
        Source::Perf(attr) => attr.clone(),
        Source::Sim(_) => panic!("simulated"),
    });
    assert!(user.exclude_kernel && !user.exclude_user && user.config == 0xc2);
    assert!(kernel.exclude_user && !kernel.exclude_kernel && kernel.config == 0x7f41);
}

#[test]
fn other_processors_refuse() {
    let refused = |vendor, family, model, name: &str| {
        let (_tree, machine) = machine(vendor, family, model);
        Resolver::new(&machine).resolve(name).err().map(|e| e.to_string())
    };
    let text = |here: &str| {
        let what = "this is a counter of AMD's Zen 4 (family 19h), but this processor is";
        Some(format!("counter list, byte 0: \"fp_ops_retired_by_type.all\": {what} {here}"))
    };
    let name = "fp_ops_retired_by_type.all";
    assert_eq!(refused("GenuineIntel", 6, 143, name), text("GenuineIntel family 6"));
    assert_eq!(refused("AuthenticAMD", 26, 2, name), text("AuthenticAMD family 26"));
    assert_eq!(refused("", 0, 0, name), text("of an unknown vendor"));
    assert_eq!(refused("AuthenticAMD", 25, 0x61, name), None);
    // Zen 3 lacks the event `name`, but has `ls_any_fills_from_sys.all_dram_io`.
    for model in [0x01, 0x21, 0x44, 0x50] {
        assert_eq!(refused("AuthenticAMD", 25, model, name), text("Zen 3"));
        assert_eq!(refused("AuthenticAMD", 25, model, "ls_any_fills_from_sys.all_dram_io"), None);
    }
}
