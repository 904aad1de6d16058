//! Decides which pages (blocks of recorded calls) of a recording are written next, so that each
//! call is in one file of `calls`.
//!
//! ```text
//!  thread   page 0  page 1 │ page 2  page 3  page 4 │ page 5 …
//!           first export   │ second export          │ in memory still: not complete
//! ```
//!
//! While a recording goes on, an export writes a page to `calls` only if the page is complete and
//! all earlier pages of its thread are there. Such pages never change. When the recording has
//! ended, everything that is left is written, including pages whose predecessor was lost.
//!
//! Rows contain the numbers of processes and the keys of ops. Both can change while the recording
//! goes on. An older process may begin to record, which is then numbered before the others. A new
//! op may come between two ops of the same name, whose keys depend on their order. After such a
//! change, an export does not continue the existing files, but writes all calls again.

use std::collections::BTreeMap;

use analysis::Key;
use profile::{PageKey, Profile};

use crate::keys::{OpName, hash_of};
use crate::layout::{Written, WrittenProcess};

pub(crate) struct Next {
    pub pages: Vec<PageKey>,
    /// Whether the files of earlier exports stay.
    pub continues: bool,
    /// The pages that are in `calls` after this export; `None` if all are.
    pub written: Option<Written>,
}

/// Returns the pages that come after the written pages. `goes_on` means that the recording has not
/// ended.
pub(crate) fn next(
    profile: &Profile,
    names: &BTreeMap<Key, OpName>,
    written: Option<&Written>,
    goes_on: bool,
) -> Next {
    let before = written.filter(|written| is_prefix(profile, names, written));
    let continues = before.is_some();
    let mut all = Written::default();
    let mut pages = Vec::new();
    for (process, p) in profile.processes.iter().enumerate() {
        let known = before.and_then(|before| before.processes.get(process));
        let mut own = of_process(profile, names, process, usize::MAX);
        own.threads = known.map(|known| known.threads.clone()).unwrap_or_default();
        for (thread, t) in p.threads.iter().enumerate() {
            let done = own.threads.get(&t.uid).copied().unwrap_or(0);
            let mut end = done;
            for (page, header) in t.headers().enumerate() {
                let sequence = header.start.sequence;
                if sequence < done {
                    continue;
                }
                // The events of plugins become calls only when the recording has ended, so their
                // pages are not complete before.
                let is_final = header.flushed && sequence == end && !p.id.is_of_plugins();
                if goes_on && !is_final {
                    break;
                }
                pages.push(PageKey { process, thread, page });
                end = sequence.saturating_add(1);
            }
            own.threads.insert(t.uid, end);
        }
        all.processes.push(own);
    }
    Next { pages, continues, written: goes_on.then_some(all) }
}

/// Returns whether the processes and ops of the earlier export still have the same numbers and
/// keys.
fn is_prefix(profile: &Profile, names: &BTreeMap<Key, OpName>, written: &Written) -> bool {
    let mut of_then = written.processes.iter().enumerate();
    written.processes.len() <= profile.processes.len()
        && of_then.all(|(number, then)| {
            let now = of_process(profile, names, number, then.ops);
            (&now.id, now.ops, &now.ops_hash) == (&then.id, then.ops, &then.ops_hash)
        })
}

fn of_process(
    profile: &Profile,
    names: &BTreeMap<Key, OpName>,
    process: usize,
    most: usize,
) -> WrittenProcess {
    let own = names.range(Key::OpIn(process, 0)..=Key::OpIn(process, u32::MAX)).take(most);
    let mut texts: Vec<&str> = Vec::new();
    for (_, op) in own {
        let (device, source) = (op.device.as_deref(), op.source.as_deref());
        let (device, source) = (device.unwrap_or_default(), source.unwrap_or_default());
        texts.extend([&*op.key, &*op.name, device, source]);
    }
    WrittenProcess {
        id: profile.processes[process].id.name(),
        ops: texts.len() / 4,
        ops_hash: hash_of(&texts),
        threads: BTreeMap::new(),
    }
}
