//! A macro for objects of JSON documents. No struct has to be declared for an object: each member's
//! name stands only beside its value.

/// Makes an object of a JSON document. The members are written in the given order:
///
/// ```ignore
/// object! {
///     calls: row.calls,
///     own as "self": row.own,        // for names that are words of Rust
///     gain_ns?: row.gain,            // an `Option`; without a value, the member is left out
///     ..thread: thread_ref(profile), // the members of another object; `thread` is only a label
/// }
/// ```
///
/// No tree of `serde_json` values is built, because integers in such a tree have at most 64 bits.
macro_rules! object {
    (@ [$({ $(#[$attribute:meta])* $key:ident $kind:ty = $value:expr })*]) => {{
        #[allow(non_camel_case_types, reason = "each member is generic, and its type has its name")]
        let object = {
            #[derive(serde::Serialize)]
            struct Object<$($key),*> {
                $($(#[$attribute])* $key: $kind,)*
            }
            Object { $($key: $value),* }
        };
        object
    }};
    (@ [$($done:tt)*] .. $key:ident : $value:expr $(, $($rest:tt)*)?) => {
        object!(@ [$($done)* { #[serde(flatten)] $key $key = $value }] $($($rest)*)?)
    };
    (@ [$($done:tt)*] $key:ident ? : $value:expr $(, $($rest:tt)*)?) => {
        object!(@ [$($done)* {
            #[serde(skip_serializing_if = "Option::is_none")] $key Option<$key> = $value
        }] $($($rest)*)?)
    };
    (@ [$($done:tt)*] $key:ident as $name:literal : $value:expr $(, $($rest:tt)*)?) => {
        object!(@ [$($done)* { #[serde(rename = $name)] $key $key = $value }] $($($rest)*)?)
    };
    (@ [$($done:tt)*] $key:ident : $value:expr $(, $($rest:tt)*)?) => {
        object!(@ [$($done)* { $key $key = $value }] $($($rest)*)?)
    };
    (@ [$($done:tt)*] $key:ident $(, $($rest:tt)*)?) => {
        object!(@ [$($done)* { $key $key = $key }] $($($rest)*)?)
    };
    ($first:tt $($rest:tt)*) => {
        object!(@ [] $first $($rest)*)
    };
}

pub(crate) use object;

/// Returns `None` for an empty list, so that a member `name?: …` is left out.
pub fn unless_empty<T>(all: Vec<T>) -> Option<Vec<T>> {
    Some(all).filter(|all| !all.is_empty())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "this is a test")]
mod tests {
    #[test]
    fn members_are_in_the_order_of_the_text() {
        let inner = object! { z: 1, a: [Some(2.5), None] };
        let calls = u128::MAX;
        let whole = object! {
            name: "add",
            own as "self": inner,
            calls,
            absent?: None::<u32>,
            present?: Some(3),
            ..others: object! { thread: 7 },
            none: None::<u32>,
        };
        let expected = format!(
            r#"{{"name":"add","self":{{"z":1,"a":[2.5,null]}},"calls":{calls},"present":3,"thread":7,"none":null}}"#
        );
        assert_eq!(serde_json::to_string(&whole).unwrap(), expected);
    }
}
