//! iterators N: loops over iterators that the compiler inlines, and loops that a panic leaves.

use std::hint::black_box;

#[inline(never)]
fn squares(n: u64) -> u64 {
    let mut sum = 0;
    for i in 0..n {
        for j in (0..i).step_by(2) {
            sum += black_box(i * j);
        }
    }
    sum
}

#[inline(never)]
fn words(text: &str) -> usize {
    text.split(' ').filter(|word| word.len() > 2).map(|word| word.chars().count()).sum()
}

#[inline(never)]
fn sorted(n: usize) -> Vec<u64> {
    let mut all: Vec<u64> = (0..n as u64).map(|i| i * 7919 % 1009).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[inline(never)]
fn checked(all: &[u64], wanted: &[usize]) -> u64 {
    let mut sum = 0;
    for i in wanted {
        sum += all[*i];
    }
    sum
}

fn main() {
    let n: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(20);
    println!("squares {}", squares(n as u64));
    println!("words {}", words("the loops of a kernel are where its time goes"));
    let all = sorted(n);
    println!("sorted {} {:?}", all.len(), all.last());
    std::panic::set_hook(Box::new(|_| {}));
    for last in [0, n * 2] {
        let result = std::panic::catch_unwind(|| checked(&all, &[0, 1, last]));
        println!("checked {:?}", result.ok());
    }
}
