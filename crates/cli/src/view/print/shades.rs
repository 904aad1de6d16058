//! Shows a probability as two characters.

/// The shades for the values from 0 to 1, the lightest one first. From one shade to the next, one
/// of the two characters gets one level higher. The levels are a blank, `_`, and one to eight
/// eighths of a block.
const SHADES: [&str; 19] = [
    "  ", "_ ", "__", "▁_", "▁▁", "▂▁", "▂▂", "▃▂", "▃▃", "▄▃", "▄▄", "▅▄", "▅▅", "▆▅", "▆▆", "▇▆",
    "▇▇", "█▇", "██",
];

/// Returns the shade of a probability raised to the power `gamma`. Without a probability, the shade
/// is blank. A column of the table of conditional probabilities has no probabilities if no call
/// belongs to this column.
pub fn shade(probability: Option<f64>, gamma: f64) -> &'static str {
    let index = probability.map_or(0.0, |p| (p.powf(gamma) * SHADES.len() as f64).floor());
    // The conversion of the float to an integer saturates, so large values and NaN also give an
    // index.
    SHADES[(index as usize).min(SHADES.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::shade;

    #[test]
    fn nineteen_steps() {
        assert_eq!(shade(None, 0.5), "  ");
        assert_eq!(shade(Some(0.0), 0.5), "  ");
        assert_eq!(shade(Some(1.0), 0.5), "██");
        // 19 · √0.25 = 9.5, 19 · 0.25 = 4.75, 19 · √0.002 = 0.85, 19 · √0.003 = 1.04.
        assert_eq!(shade(Some(0.25), 0.5), "▄▃");
        assert_eq!(shade(Some(0.25), 1.0), "▁▁");
        assert_eq!(shade(Some(0.002), 0.5), "  ");
        assert_eq!(shade(Some(0.003), 0.5), "_ ");
        let steps = (0..19).map(|i| shade(Some((f64::from(i) + 0.5) / 19.0), 1.0));
        let steps: std::collections::HashSet<&str> = steps.collect();
        assert_eq!(steps.len(), 19);
        assert!(steps.iter().all(|text| text.chars().count() == 2));
    }
}
