//! Writes the output of `counterpoint explain` as JSON. `docs/schema.md` describes the document.

use std::io::{self, Write};

use analysis::explain::{Class, Effect, Finding, Level, Silent, What};
use analysis::{Explained, Fired};
use profile::Profile;
use serde::Serialize;

use super::View;
use crate::object::object;
use crate::view::explained::{name, sentences};
use crate::view::head::ProfileHead;
use crate::view::held_back::{advice, finding, rule_name};
use crate::view::keys::{ThreadRef, key_out, thread_ref};
use crate::view::labels::op_of;
use crate::view::losses::losses_out;

const SCHEMA: &str = "counterpoint.explain/1";

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum EffectOut<'a> {
    Ordered {
        spearman: f64,
        slowest: LevelOut,
        others: LevelOut,
    },
    OffCpu {
        spearman: f64,
        slowest: LevelOut,
        others: LevelOut,
        slowest_mean_ns: f64,
        others_mean_ns: f64,
        share_of_slowest: f64,
        share_of_others: f64,
        share_of_excess: f64,
    },
    Class {
        class: Option<ClassOut<'a>>,
        median_ns: f64,
        others_median_ns: f64,
        share: f64,
        share_of_slowest: f64,
        mutual_information: f64,
    },
    First {
        calls: usize,
        median_ns: f64,
        others_median_ns: f64,
        of_slowest: usize,
    },
    Time {
        spearman: f64,
        first_tenth_ns: f64,
        last_tenth_ns: f64,
        /// The calls are sorted by start and divided into tenths. This is the number (from 1) of
        /// the tenth with the largest median duration.
        slowest_tenth: usize,
        slowest_tenth_ns: f64,
    },
}

#[derive(Serialize)]
struct LevelOut {
    median: f64,
    mean: f64,
    nonzero_share: f64,
}

/// A class of a variable's values, such as one CPU or a range of workgroups. In the JSON, null
/// stands for the class of all rare values.
#[derive(Serialize)]
#[serde(untagged)]
enum ClassOut<'a> {
    Thread(ThreadRef),
    Process { process: usize },
    Cpu { cpu: u32 },
    Workgroups { first_workgroup: u32, last_workgroup: u32 },
    Arguments { arguments: &'a str },
}

pub fn print(out: &mut impl Write, view: &View<'_>) -> io::Result<()> {
    let profile = view.profile;
    let rule = |fired: &Fired| {
        object! {
            rule: rule_name(&fired.rule),
            share_of_wall: fired.share,
            wall_ns: fired.wall_ns,
            sentence: finding(profile, fired),
            advice: advice(&fired.rule),
        }
    };
    let document = object! {
        schema: SCHEMA,
        profile: ProfileHead::new(&profile.manifest, profile),
        asked: object! {
            // This member is null if the user named no op.
            op: view.glob,
            probe_subtracted: !view.raw && !view.summary.raw,
        },
        ops: view.ops.iter().map(|one| op_out(profile, one)).collect::<Vec<_>>(),
        // This list is empty if the user named an op.
        rules: view.rules.iter().map(rule).collect::<Vec<_>>(),
        losses: losses_out(&view.summary.losses),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn op_out(profile: &Profile, explained: &Explained) -> impl Serialize {
    let answer = &explained.answer;
    let same = |(what, effect): &(What, Effect)| {
        object! {
            variable: name(profile, *what),
            effect: effect_out(profile, explained, *what, effect),
        }
    };
    let finding = |finding: &Finding| {
        object! {
            variable: name(profile, finding.what),
            strength: finding.strength,
            effect: effect_out(profile, explained, finding.what, &finding.effect),
            same_as: finding.same.iter().map(same).collect::<Vec<_>>(),
        }
    };
    object! {
        // The rows of an op differ only in their arguments.
        rows: explained.keys.iter().map(|key| key_out(profile, *key)).collect::<Vec<_>>(),
        calls: explained.calls,
        used_calls: explained.used,
        median_ns: answer.slow.of_all,
        slowest: object! {
            calls: answer.slow.calls,
            share: answer.slow.share,
            median_ns: answer.slow.median,
            mean_ns: answer.slow.mean,
        },
        // The reason why the variables were not analysed; null if they were.
        silent: answer.silent.map(|silent| match silent {
            Silent::TooFew => "too_few",
            Silent::Even => "even",
            Silent::Alike => "alike",
        }),
        drifts: answer.drifts,
        variables: explained.asked.iter().map(|what| name(profile, *what)).collect::<Vec<_>>(),
        findings: answer.findings.iter().map(finding).collect::<Vec<_>>(),
        sentences: sentences(profile, explained),
    }
}

fn effect_out<'a>(
    profile: &'a Profile,
    explained: &Explained,
    what: What,
    effect: &Effect,
) -> EffectOut<'a> {
    let level = |of: Level| LevelOut { median: of.median, mean: of.mean, nonzero_share: of.some };
    match *effect {
        Effect::Ordered { spearman, slow, others } => {
            EffectOut::Ordered { spearman, slowest: level(slow), others: level(others) }
        }
        Effect::OffCpu { spearman, slow, others, means, share, of_others, of_excess } => {
            EffectOut::OffCpu {
                spearman,
                slowest: level(slow),
                others: level(others),
                slowest_mean_ns: means[0],
                others_mean_ns: means[1],
                share_of_slowest: share,
                share_of_others: of_others,
                share_of_excess: of_excess,
            }
        }
        Effect::Class { class, median, others, share, of_slow, information } => EffectOut::Class {
            class: explained.class(what, class).and_then(|class| class_out(profile, class)),
            median_ns: median,
            others_median_ns: others,
            share,
            share_of_slowest: of_slow,
            mutual_information: information,
        },
        Effect::First { calls, median, others, of_slow } => EffectOut::First {
            calls,
            median_ns: median,
            others_median_ns: others,
            of_slowest: of_slow,
        },
        Effect::Time { spearman, first, last, slowest: (tenth, median), .. } => EffectOut::Time {
            spearman,
            first_tenth_ns: first,
            last_tenth_ns: last,
            slowest_tenth: tenth + 1,
            slowest_tenth_ns: median,
        },
    }
}

fn class_out(profile: &Profile, class: Class) -> Option<ClassOut<'_>> {
    Some(match class {
        Class::Thread(process, thread) => ClassOut::Thread(thread_ref(profile, process, thread)),
        Class::Process(process) => ClassOut::Process { process },
        Class::Cpu(cpu) => ClassOut::Cpu { cpu },
        Class::Workgroups(first_workgroup, last_workgroup) => {
            ClassOut::Workgroups { first_workgroup, last_workgroup }
        }
        Class::Arguments(op) => {
            let op = op_of(profile, analysis::Key::Op(op))?;
            ClassOut::Arguments { arguments: &op.arguments }
        }
        Class::Others => return None,
    })
}
