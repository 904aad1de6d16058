/**
 * Sorts the calls of the timeline by lane and level, so that a binary search finds what a pixel
 * shows: drawing must not go through all calls.
 *
 * @typedef {import("./load.js").Calls} Calls
 * @typedef {object} Level The calls of one level of a lane, in the order of time.
 * @property {Calls} calls
 * @property {Uint32Array} order The numbers of the level's calls among the calls of the lane.
 * @property {Float64Array} busy For each call, the sum of the durations of all earlier calls of the
 *   level. The last element is the sum of all durations.
 * @typedef {object} Runs The runs of equal pixels in a row of pixels, from left to right.
 * @property {Float32Array} from
 * @property {Float32Array} to
 * @property {Uint32Array} call For each run, the number of a long call in it, among the calls of
 *   the lane.
 * @property {Uint8Array} share The share of a run's time that is in calls, from 1 to 4 quarters; 5
 *   if the run is one whole call.
 * @property {number} length
 */

/** The value of `Runs.share` for a run that is one call. */
export const WHOLE = 5;

/** The largest number of calls of one pixel that are examined to find a long one. */
const SAMPLES = 8;

/** A call that is wider than this number of pixels is drawn by itself. */
const WIDE = 1.5;

/**
 * @param {Calls} calls
 * @param {(call: number) => boolean} [wanted]
 * @returns {Level[]}
 */
export function levelsOf(calls, wanted) {
  /** @type {number[]} */
  const counts = [];
  const { depths, begins, ends } = calls;
  for (let i = 0; i < depths.length; i++) {
    if (wanted !== undefined && !wanted(i)) continue;
    const depth = depths[i] ?? 0;
    while (counts.length <= depth) counts.push(0);
    counts[depth] = (counts[depth] ?? 0) + 1;
  }
  const levels = counts.map((count) => ({
    calls, order: new Uint32Array(count), busy: new Float64Array(count + 1),
  }));
  const next = counts.map(() => 0);
  for (let i = 0; i < depths.length; i++) {
    if (wanted !== undefined && !wanted(i)) continue;
    const depth = depths[i] ?? 0;
    const level = levels[depth];
    const at = next[depth] ?? 0;
    if (level === undefined) continue;
    level.order[at] = i;
    level.busy[at + 1] = (level.busy[at] ?? 0) + (ends[i] ?? 0) - (begins[i] ?? 0);
    next[depth] = at + 1;
  }
  return levels;
}

/**
 * Returns the place of the first call that begins at or after a moment.
 * @param {Level} level
 * @param {number} ns
 * @param {number} [from] The place at which the search begins. It must not be after the result.
 */
export function firstFrom(level, ns, from = 0) {
  const { order } = level;
  const { begins } = level.calls;
  let [low, high] = [from, order.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((begins[order[middle] ?? 0] ?? 0) < ns) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Returns the place of the first call that ends after a moment.
 * @param {Level} level
 * @param {number} ns
 */
export function firstAfter(level, ns) {
  const place = firstFrom(level, ns);
  const before = level.order[place - 1];
  return before !== undefined && (level.calls.ends[before] ?? 0) > ns ? place - 1 : place;
}

/** @returns {Runs} Empty, with room for a row of `width` pixels. @param {number} width */
export function emptyRuns(width) {
  const room = width * 2 + 8;
  return {
    from: new Float32Array(room),
    to: new Float32Array(room),
    call: new Uint32Array(room),
    share: new Uint8Array(room),
    length: 0,
  };
}

/**
 * Computes the runs of a row of pixels, with one binary search and a few more steps for each pixel.
 * @param {Level} level
 * @param {number} from The moment at the left edge, in ns.
 * @param {number} perPixel
 * @param {number} width In pixels.
 * @param {Runs} runs The runs into which the result is written.
 */
export function runsOf(level, from, perPixel, width, runs) {
  const { order, busy, calls } = level;
  const { begins, ends } = calls;
  runs.length = 0;
  const room = runs.from.length;
  let place = firstAfter(level, from);
  let x = 0;
  while (x < width && place < order.length && runs.length < room) {
    const call = order[place] ?? 0;
    const begin = ((begins[call] ?? 0) - from) / perPixel;
    const end = ((ends[call] ?? 0) - from) / perPixel;
    if (begin >= width) break;
    const at = Math.max(x, begin);
    const n = runs.length;
    if (end - at >= WIDE) {
      const to = Math.min(end, width);
      runs.from[n] = at;
      runs.to[n] = to;
      runs.call[n] = call;
      runs.share[n] = WHOLE;
      runs.length = n + 1;
      x = to;
      place++;
      continue;
    }
    const pixel = Math.floor(at);
    const until = from + (pixel + 1) * perPixel;
    const next = Math.max(place + 1, firstFrom(level, until, place));
    const part = ((busy[next] ?? 0) - (busy[place] ?? 0)) / perPixel;
    runs.from[n] = pixel;
    runs.to[n] = pixel + 1;
    runs.call[n] = longestOf(level, place, next);
    runs.share[n] = Math.min(4, Math.max(1, Math.ceil(part * 4)));
    runs.length = n + 1;
    x = pixel + 1;
    // The last call of this pixel may continue in the next pixel.
    const last = order[next - 1] ?? 0;
    place = (ends[last] ?? 0) > until ? next - 1 : next;
    if (place < next && ((ends[last] ?? 0) - from) / perPixel - x < 0.5) place = next;
  }
}

/**
 * Returns a long call. Only a few calls at equal distances are examined.
 * @param {Level} level
 * @param {number} from The place of the first call.
 * @param {number} to
 */
function longestOf(level, from, to) {
  const { order } = level;
  const { begins, ends } = level.calls;
  const step = Math.max(1, (to - from) / SAMPLES);
  let [best, most] = [order[from] ?? 0, -1];
  for (let place = from; place < to; place += step) {
    const call = order[Math.floor(place)] ?? 0;
    const duration = (ends[call] ?? 0) - (begins[call] ?? 0);
    if (duration > most) {
      most = duration;
      best = call;
    }
  }
  return best;
}
