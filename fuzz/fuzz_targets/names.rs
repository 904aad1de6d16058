//! Any text as a counter list: an answer with a place inside the text, and what is printed reads
//! back the same.
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
