//! Describes in words what a trace without slices contains.

/// `forms` has the number of events of each form (the value of `ph`).
pub(super) fn held(forms: &[u64; 256]) -> String {
    const KINDS: [(&str, &str, &[u8]); 6] = [
        ("counter event", "counter events", b"C"),
        ("end of an asynchronous span", "ends of asynchronous spans", b"beSF"),
        ("asynchronous instant", "asynchronous instants", b"nTp"),
        ("instant", "instants", b"iIR"),
        ("end of an arrow", "ends of arrows", b"stf"),
        ("name of a row", "names of rows", b"M"),
    ];
    let sum = |all: &[u8]| all.iter().map(|form| forms[usize::from(*form)]).sum::<u64>();
    let say = |(one, many, of): &(&str, &str, &[u8])| match sum(of) {
        0 => None,
        1 => Some(format!("1 {one}")),
        n => Some(format!("{n} {many}")),
    };
    let mut found: Vec<String> = KINDS.iter().filter_map(say).collect();
    let others = forms.iter().sum::<u64>() - KINDS.iter().map(|(_, _, of)| sum(of)).sum::<u64>();
    found.extend((others > 0).then(|| format!("{others} other events")));
    if found.is_empty() { "it has no events".to_owned() } else { found.join(", ") }
}
