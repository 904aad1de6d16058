/**
 * Distributions of durations in logarithmic bins: 16 for each doubling.
 *
 * @typedef {import("./data.js").Distribution} Distribution
 */

/** Within an octave, the duration doubles. */
const PER_OCTAVE = 16;

/**
 * The result is in ns. A fraction of `bin` means a place within the bin.
 * @param {number} bin
 */
export function binEdge(bin) {
  return 2 ** (bin / PER_OCTAVE);
}

/** @param {Distribution} times */
export function totalOf(times) {
  return times.counts.reduce((sum, count) => sum + count, 0);
}

/**
 * Returns a bin number; its fraction is the place within the bin. The result is approximate: the
 * report's quantiles are exact.
 * @param {Distribution} times
 * @param {number} part
 * @returns {number | null}
 */
export function quantileOf(times, part) {
  const wanted = totalOf(times) * part;
  let sum = 0;
  for (const [i, count] of times.counts.entries()) {
    if (count > 0 && sum + count >= wanted) {
      return times.first + i + Math.min(1, Math.max(0, (wanted - sum) / count));
    }
    sum += count;
  }
  return null;
}
