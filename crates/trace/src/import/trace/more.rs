//! Stores those keys of an event that have no column in an imported profile.

use serde_json::Value;

use crate::chrome::event::{Event, Scalar};

/// Appends, as a JSON object, the keys of an event that have no column in [`profile::activities`],
/// and times more precise than nanoseconds.
pub(super) fn more(event: &Event<'_>, out: &mut String) {
    for (key, exact) in [("ts", event.exact_time), ("dur", event.exact_duration)] {
        if let Some(exact) = exact {
            put(out, key, exact.get());
        }
    }
    let texts = [("bp", &event.binding), ("s", &event.scope)];
    for (key, text) in texts {
        if let Some(text) = text {
            put(out, key, &Value::from(&**text).to_string());
        }
    }
    for (key, value) in &event.other {
        put(out, key, value.get());
    }
    if !out.is_empty() {
        out.push('}');
    }
}

pub(super) fn json(scalar: &Scalar<'_>) -> String {
    match scalar {
        Scalar::Int(n) => n.to_string(),
        Scalar::Big(n) => n.to_string(),
        Scalar::Float(x) => x.to_string(),
        Scalar::Text(text) => Value::from(&**text).to_string(),
    }
}

fn put(out: &mut String, key: &str, value: &str) {
    out.push(if out.is_empty() { '{' } else { ',' });
    out.push_str(&Value::from(key).to_string());
    out.push(':');
    out.push_str(value);
}
