//! Defines the keys of an event (except `args`) whose values the reader interprets.

use std::borrow::Cow;

use crate::chrome::event::{Event, Raw, Scalar, phase};
use crate::chrome::time::{Time, micros};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Phase,
    Name,
    Category,
    Pid,
    Tid,
    Time,
    Duration,
    Id,
    Binding,
    Scope,
}

impl Field {
    /// Stores a text as the field's value. Returns `None` if the field is a time or duration and
    /// the text is not a number of whole nanoseconds, given in microseconds.
    #[inline(always)]
    pub(super) fn put_text<'a>(self, event: &mut Event<'a>, text: Cow<'a, str>) -> Option<()> {
        match self {
            Self::Phase => event.phase = phase(&text),
            Self::Name => event.name = Some(text),
            Self::Category => event.category = Some(text),
            Self::Pid => event.pid = Some(Scalar::Text(text)),
            Self::Tid => event.tid = Some(Scalar::Text(text)),
            Self::Id => event.id = Some(Scalar::Text(text)),
            Self::Binding => event.binding = Some(text),
            Self::Scope => event.scope = Some(text),
            Self::Time => (event.time_ns, event.exact_time) = (Some(exact_ns(&text)?), None),
            Self::Duration => {
                (event.duration_ns, event.exact_duration) = (Some(exact_ns(&text)?), None);
            }
        }
        Some(())
    }

    /// Stores a number as the field's value. Does this only for `pid`, `tid` and `id`, and returns
    /// `None` for the other fields.
    #[inline(always)]
    pub(super) fn put_number(self, event: &mut Event<'_>, number: i64) -> Option<()> {
        let field = match self {
            Self::Pid => &mut event.pid,
            Self::Tid => &mut event.tid,
            Self::Id => &mut event.id,
            _ => return None,
        };
        *field = Some(Scalar::Int(number));
        Some(())
    }

    /// Stores a time as the value of the field, which must be `ts` or `dur`. `text` is the value in
    /// the document.
    #[inline(always)]
    pub(super) fn put_time<'a>(self, event: &mut Event<'a>, time: Time, text: &'a str) {
        let exact = if time.exact { None } else { Some(Raw::of(text)) };
        match self {
            Self::Time => (event.time_ns, event.exact_time) = (Some(time.ns), exact),
            _ => (event.duration_ns, event.exact_duration) = (Some(time.ns), exact),
        }
    }

    pub(super) fn put_null(self, event: &mut Event<'_>) {
        match self {
            Self::Phase => event.phase = 0,
            Self::Name => event.name = None,
            Self::Category => event.category = None,
            Self::Pid => event.pid = None,
            Self::Tid => event.tid = None,
            Self::Time => (event.time_ns, event.exact_time) = (None, None),
            Self::Duration => (event.duration_ns, event.exact_duration) = (None, None),
            Self::Id => event.id = None,
            Self::Binding => event.binding = None,
            Self::Scope => event.scope = None,
        }
    }
}

/// Returns the nanoseconds of a time. Returns `None` if the text is not a time, or is more precise
/// than nanoseconds.
fn exact_ns(text: &str) -> Option<i64> {
    micros(text.as_bytes()).filter(|time| time.exact).map(|time| time.ns)
}
