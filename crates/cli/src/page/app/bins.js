/**
 * Distributions of durations in logarithmic bins: 16 for each doubling.
 *
 * @typedef {import("./data.js").Distribution} Distribution
 */

/** Bins of an octave. */
const PER_OCTAVE = 16;

/**
 * Where a bin begins, in ns. Fractions are places within a bin.
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
 * The bin, with the place in it, below which a part of the calls is. It is for drawing only: the report's
 * quantiles are exact.
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
