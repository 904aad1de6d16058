/**
 * Reads the page's data from script elements that browsers do not run. The data are compressed with
 * gzip and encoded in base64.
 *
 * @typedef {import("./data.js").Head} Head
 * @typedef {import("./data.js").Timeline} Timeline
 * @typedef {object} Calls The calls of a lane, in the order of their begins. All times are in ns.
 * @property {Float64Array} begins
 * @property {Float64Array} ends
 * @property {Uint32Array} names
 * @property {Uint16Array} depths
 */

/**
 * The script elements with the data. They are looked up early, because they are removed when the
 * page is built.
 */
const BLOCKS = new Map(["head", "timeline"].map((id) => [id, document.getElementById(id)]));

/**
 * @param {string} id
 * @returns {Promise<ArrayBuffer>}
 */
async function block(id) {
  const element = BLOCKS.get(id) ?? null;
  if (element === null) throw new Error(`this page has no block ${id}`);
  const packed = Uint8Array.from(atob((element.textContent ?? "").trim()), (one) => one.charCodeAt(0));
  // The element is removed, because a large block takes much memory.
  BLOCKS.delete(id);
  element.remove();
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

/** @returns {Promise<Head>} */
export async function loadHead() {
  const head = JSON.parse(new TextDecoder().decode(await block("head")));
  if (head.schema !== "counterpoint.page/1") throw new Error("this page's data is of another version");
  return head;
}

/**
 * @param {Timeline} timeline
 * @returns {Promise<Calls[]>} The calls of each lane.
 */
export async function loadLanes(timeline) {
  const bytes = new Uint8Array(await block("timeline"));
  return timeline.lanes.map((lane) => {
    const part = bytes.subarray(lane.offset, lane.offset + lane.bytes);
    return decodeLane(part, lane.calls, timeline.grid);
  });
}

/**
 * Decodes the four sequences of a lane. `data.js` describes the format.
 * @param {Uint8Array} bytes
 * @param {number} calls
 * @param {number} grid
 * @returns {Calls}
 */
function decodeLane(bytes, calls, grid) {
  let at = 0;
  const next = () => {
    let byte = bytes[at++] ?? 0;
    if (byte < 128) return byte;
    let value = byte & 127;
    let unit = 128;
    do {
      byte = bytes[at++] ?? 0;
      value += (byte & 127) * unit;
      unit *= 128;
    } while (byte >= 128);
    return value;
  };
  const begins = new Float64Array(calls);
  const ends = new Float64Array(calls);
  const names = new Uint32Array(calls);
  const depths = new Uint16Array(calls);
  // The first of the lane's four sequences contains the distance of each call's begin from the end
  // of the previous call. The begins are computed below, where the durations are known.
  for (let i = 0; i < calls; i++) {
    const zigzag = next();
    begins[i] = zigzag % 2 === 0 ? zigzag / 2 : -(zigzag + 1) / 2;
  }
  let end = 0;
  for (let i = 0; i < calls; i++) {
    const begin = end + (begins[i] ?? 0);
    end = begin + next();
    begins[i] = begin * grid;
    ends[i] = end * grid;
  }
  for (let i = 0; i < calls; i++) names[i] = next();
  for (let i = 0; i < calls; i++) depths[i] = next();
  return { begins, ends, names, depths };
}
