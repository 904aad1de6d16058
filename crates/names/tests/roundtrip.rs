//! Tests random lists: a printed list is read as the same list, and no text makes the parser panic.

use machine::Machine;
use names::{Access, Entries, Filter, Head, Item, List, Modifiers, Resolver, Term, parse, pieces};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

fn modifiers() -> impl Strategy<Value = Modifiers> {
    any::<[bool; 8]>().prop_map(
        |[user, kernel, hypervisor, guest, host, not_idle, pinned, exclusive]| Modifiers {
            user,
            kernel,
            hypervisor,
            guest,
            host,
            not_idle,
            pinned,
            exclusive,
        },
    )
}

/// Any text: with quotes, slashes and commas, or empty.
fn anything() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9]{0,8}", "[-a-zA-Z0-9 ,/:{}=\"\\\\.é<>&]{1,12}", "\\PC{1,12}"]
}

fn word() -> impl Strategy<Value = String> {
    "[a-zA-Zé_][-a-zA-Z0-9é_.*]{0,12}".prop_filter("these begin other forms", |word| {
        !["mem", "uprobe", "uretprobe"].iter().any(|w| w.eq_ignore_ascii_case(word))
    })
}

/// The name of a tracepoint, which must not consist of modifiers alone.
fn point() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_]{0,8}z"
}

fn term() -> impl Strategy<Value = Term> {
    ("[a-zA-Z_][-a-zA-Z0-9_.]{0,8}", option::of(anything())).prop_map(|(name, value)| Term {
        at: 0,
        name,
        value,
    })
}

fn head() -> impl Strategy<Value = Head> {
    let access = any::<[bool; 3]>().prop_filter_map("some access", |[read, write, execute]| {
        (read || write || execute).then_some(Access { read, write, execute })
    });
    let attribute = ("[a-z]{1,4}", option::of("[a-z0-9]{1,4}")).prop_map(|(name, value)| Term {
        at: 0,
        name,
        value,
    });
    prop_oneof![
        word().prop_map(Head::Word),
        (word(), vec(term(), 0..4)).prop_map(|(pmu, terms)| Head::Pmu { pmu, terms }),
        (word(), point(), option::of(anything())).prop_map(|(system, name, filter)| {
            let filter = filter.map(|text| Filter { at: 0, text });
            Head::Tracepoint { system, name, filter }
        }),
        (any::<u64>(), option::of(any::<u64>()), option::of(access))
            .prop_map(|(address, len, access)| Head::Breakpoint { address, len, access }),
        (any::<bool>(), anything(), option::of("[a-zA-Z_$][a-zA-Z0-9_.$@]{0,12}"), any::<u64>())
            .prop_map(|(returns, path, symbol, offset)| Head::Uprobe {
                returns,
                path,
                at: 0,
                symbol,
                offset
            }),
        (word(), word(), vec(attribute, 0..3)).prop_map(|(pmu, name, attributes)| Head::Papi {
            pmu,
            name,
            attributes
        }),
        (word(), "[-a-zA-Z0-9_:.=/]{0,20}[a-z]")
            .prop_filter("a fourth colon would be the name's", |(_, name)| !name.starts_with(':'))
            .prop_map(|(component, name)| Head::Device { component, name }),
    ]
}

fn item() -> impl Strategy<Value = Item> {
    (head(), modifiers()).prop_map(|(head, modifiers)| {
        // Names in libpfm4's spelling and names of accelerators' counters take no modifiers.
        let takes = !matches!(head, Head::Papi { .. } | Head::Device { .. });
        let modifiers = if takes { modifiers } else { Modifiers::default() };
        Item { at: 0, head, modifiers }
    })
}

fn list() -> impl Strategy<Value = List> {
    let entries = prop_oneof![
        item().prop_map(Entries::Single),
        (vec(item(), 1..4), modifiers())
            .prop_map(|(items, modifiers)| Entries::Group { items, modifiers }),
    ];
    vec(entries, 1..5).prop_map(|entries| List { entries })
}

/// Clears the byte offsets, because printing changes them.
fn placeless(mut list: List) -> List {
    fn clear(item: &mut Item) {
        item.at = 0;
        match &mut item.head {
            Head::Pmu { terms, .. } | Head::Papi { attributes: terms, .. } => {
                terms.iter_mut().for_each(|t| t.at = 0);
            }
            Head::Tracepoint { filter: Some(filter), .. } => filter.at = 0,
            Head::Uprobe { at, .. } => *at = 0,
            _ => {}
        }
    }
    for entry in &mut list.entries {
        match entry {
            Entries::Single(item) => clear(item),
            Entries::Group { items, .. } => items.iter_mut().for_each(clear),
        }
    }
    list
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn parsing_undoes_printing(list in list()) {
        let text = list.to_string();
        let again = parse(&text);
        prop_assert!(again.is_ok(), "{text}: {again:?}");
        prop_assert_eq!(placeless(again.expect("checked")), list.clone(), "{}", text);
        // `pieces` returns each entry of the printed list.
        let printed: Vec<String> = list.entries.iter().map(ToString::to_string).collect();
        prop_assert_eq!(pieces(&text), printed);
    }

    /// Resolving a text does not panic, and an error's offset is at a character of the text or at
    /// its end.
    #[test]
    fn no_text_panics(
        text in prop_oneof![
            "\\PC{0,20}",
            vec(select(PIECES), 0..12).prop_map(|pieces| pieces.concat()),
        ]
    ) {
        let resolver = Resolver::new(&Machine::at("/nonexistent"));
        if let Err(error) = resolver.resolve(&text) {
            prop_assert!(error.at <= text.len(), "{text:?}: {error}");
            prop_assert!(text.is_char_boundary(error.at), "{text:?}: {error}");
            error.pointed_at(&text);
        }
        let pieces = pieces(&text);
        prop_assert!(pieces.iter().map(|p| p.len()).sum::<usize>() <= text.len());
    }
}

#[rustfmt::skip]
const PIECES: &[&str] = &[
    "cs", "cycles", ":", "::", ":::", "u", "/", ",", "{", "}", "=", "mem:", "uprobe:", "/bin/sh",
    "perf", "PAPI_TOT_CYC", "cuda", "0x", "sim/", "é", " ", "r", "9", "*", "@", "!", "x", "readings=",
    "filter=", "\"", "\\", "+", "name=",
];
