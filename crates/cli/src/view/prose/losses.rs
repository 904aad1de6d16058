//! Prints losses: what a recording lacks, and why.

use std::io::{self, Write};

use model::Severity;
use profile::LossCount;
use serde::Serialize;

use crate::object::object;
use crate::terminal::{Style, say};
use crate::view::units::grouped;
use crate::view::wrap::wrapped;

pub fn errno_text(loss: &LossCount) -> Option<String> {
    loss.errno.map(|errno| match model::errno::kernel_only(errno) {
        Some((name, meaning)) => format!("{name}: {meaning} (os error {errno})"),
        None => io::Error::from_raw_os_error(errno).to_string(),
    })
}

/// Returns the losses, the worst ones first. Losses of the same severity keep their order.
pub fn by_severity(losses: &[LossCount]) -> Vec<&LossCount> {
    let mut sorted: Vec<&LossCount> = losses.iter().collect();
    sorted.sort_by_key(|loss| std::cmp::Reverse(severity(loss)));
    sorted
}

/// Prints one line on stderr for each loss, for views whose stdout is for other programs.
pub fn say(losses: &[LossCount]) {
    for loss in losses {
        say!("{}: {} × {}: {}", severity(loss).name(), loss.count, loss.name, loss.help());
    }
}

pub fn severity(loss: &LossCount) -> Severity {
    loss.severity()
}

/// Like [`print()`], but losses that change no number are named in one line.
pub fn print_brief(out: &mut impl Write, losses: &[LossCount], width: usize) -> io::Result<()> {
    let is_note = |loss: &LossCount| severity(loss) == Severity::Note;
    let (notes, others): (Vec<_>, Vec<_>) = losses.iter().cloned().partition(is_note);
    print(out, &others, width)?;
    let count = |loss: &LossCount| format!("{} × {}", grouped(loss.count.into()), loss.name);
    let names: Vec<String> = notes.iter().map(count).collect();
    match names.is_empty() {
        true => Ok(()),
        false => {
            wrapped(out, "note: ", &format!("{} (--verbose explains)", names.join(", ")), width)
        }
    }
}

pub fn print(out: &mut impl Write, losses: &[LossCount], width: usize) -> io::Result<()> {
    for loss in by_severity(losses) {
        let errno = errno_text(loss).map_or(String::new(), |text| format!(" ({text})"));
        let (on, off) = match severity(loss) {
            Severity::Note => ("", ""),
            Severity::Missing => (Style::Yellow.mark(), Style::Off.mark()),
            Severity::Distorted => (Style::Red.mark(), Style::Off.mark()),
        };
        let head = format!("{}: ", severity(loss).name());
        let text =
            format!("{} × {}{errno}: {}", grouped(loss.count.into()), loss.name, loss.help());
        write!(out, "{on}")?;
        wrapped(out, &head, &text, width)?;
        write!(out, "{off}")?;
    }
    Ok(())
}

pub fn losses_out(losses: &[LossCount]) -> Vec<impl Serialize + use<>> {
    by_severity(losses).into_iter().map(loss).collect()
}

fn loss(loss: &LossCount) -> impl Serialize + use<> {
    object! {
        name: loss.name.clone(),
        severity: severity(loss).name(),
        count: loss.count,
        errno: loss.errno,
        errno_text: errno_text(loss),
        help: loss.help(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C library has no text for error numbers that only the kernel defines.
    #[test]
    fn error_numbers_have_a_text() {
        let text = |errno| {
            let loss = LossCount { name: "counter_open_failed".into(), count: 1, errno };
            errno_text(&loss)
        };
        let own = text(Some(524)).unwrap();
        assert!(own.starts_with("ENOTSUPP: ") && own.ends_with("(os error 524)"), "{own}");
        assert_eq!(text(Some(libc::EMFILE)).as_deref(), Some("Too many open files (os error 24)"));
        assert_eq!(text(None), None);
    }
}
