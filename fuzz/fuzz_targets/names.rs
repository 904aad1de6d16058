//! Parses arbitrary text as a counter list. An error must have a position inside the text, and the
//! printed form of a valid list must parse to the same list.
#![no_main]

use libfuzzer_sys::fuzz_target;
use machine::Machine;
use names::{Resolver, parse, pieces};

fuzz_target!(|text: &str| {
    pieces(text);
    match parse(text) {
        Ok(list) => {
            let printed = list.to_string();
            let again = parse(&printed).expect("what is printed reads back");
            assert_eq!(again.to_string(), printed);
            let _ = Resolver::new(&Machine::at("/nonexistent")).resolve(text);
        }
        Err(error) => assert!(text.is_char_boundary(error.at), "{error}"),
    }
});
