// Loads traces into Perfetto's trace processor and answers SQL about them.
//
//     node trace_processor.mjs DIRECTORY
//
// DIRECTORY holds the trace processor as `cargo xtask test` fetches it: the WebAssembly module, the
// glue code that Perfetto compiles for a browser's worker, and the library that speaks its protocol.
//
// Each line of stdin is a request in JSON, each line of stdout its answer:
//
//     {"load": PATH}      {"error": null}, or what the trace processor says against the file
//     {"query": SQL}      {"columns": [...], "rows": [[...], ...]} or {"error": TEXT}
//
// A file that is loaded takes the place of the one before. Whole numbers are written with all their
// digits; a number that JSON does not have is written as the text "NaN", "Infinity" or "-Infinity".
import fs from 'node:fs';
import path from 'node:path';
import readline from 'node:readline';
import vm from 'node:vm';
import { pathToFileURL } from 'node:url';

const CHUNK_BYTES = 32 << 20;

if (process.argv.length !== 3) {
  console.error('usage: node trace_processor.mjs DIRECTORY');
  process.exit(2);
}
const directory = path.resolve(process.argv[2]) + path.sep;

// Answers go to stdout; whatever the module prints must not.
const say = (text) => fs.writeSync(1, text + '\n');
console.log = console.info = console.warn = (...words) => {
  // The library says so of each field of a result that is newer than itself.
  if (!/Unexpected QueryResult field/.test(String(words[0]))) console.error(...words);
};

// What a browser's worker has and Node.js has not.
globalThis.self = globalThis;
globalThis.WorkerGlobalScope ??= function WorkerGlobalScope() {};
Object.defineProperty(globalThis, 'location', {
  value: { href: pathToFileURL(directory).href }, writable: true, configurable: true,
});

// The glue code looks for a 64-bit module beside it and fetches its module by name. Here it gets the
// 32-bit one that there is, and leaves its bridge where we find it.
globalThis.traceProcessorWasm = new Uint8Array(fs.readFileSync(directory + 'trace_processor.wasm'));
let glue = fs.readFileSync(directory + 'engine_bundle.node.js', 'utf8');
for (const [before, after] of [
  ['this.useMemory64 = hasMemory64Support();', 'this.useMemory64 = false;'],
  ['locateFile: (s) => s,', 'locateFile: (s) => s, wasmBinary: globalThis.traceProcessorWasm,'],
  ['const wasmBridge = new wasm_bridge_1.WasmBridge();',
   'const wasmBridge = globalThis.traceProcessorBridge = new wasm_bridge_1.WasmBridge();'],
]) {
  if (glue.split(before).length !== 2) {
    throw new Error(`engine_bundle.node.js: another version, it does not have ${before} once`);
  }
  glue = glue.replace(before, () => after);
}
const { EngineBase } = await import(pathToFileURL(directory + 'engine.mjs').href);
vm.runInThisContext(glue, { filename: 'engine_bundle.node.js' });
const bridge = globalThis.traceProcessorBridge;

class Engine extends EngineBase {
  mode = 'WASM';
  id = 'tests';

  constructor(port) {
    super();
    this.port = port;
    port.onmessage = ({ data }) => {
      if (data instanceof Uint8Array) this.onRpcResponseBytes(data);
    };
  }

  rpcSendRequestBytes(bytes) {
    this.port.postMessage(bytes);
  }
}

const { port1, port2 } = new MessageChannel();
bridge.initialize(port1);
// The module compiles in the background; the bridge has a buffer once that is done.
while (!bridge.reqBufferAddr) await new Promise((resolve) => setTimeout(resolve, 5));
const engine = new Engine(port2);

async function load(file) {
  await engine.resetTraceProcessor({
    cropTrackEvents: false,
    ingestFtraceInRawTable: false,
    analyzeTraceProtoContent: false,
    ftraceDropUntilAllCpusValid: false,
  });
  const handle = fs.openSync(file);
  try {
    const chunk = new Uint8Array(CHUNK_BYTES);
    for (;;) {
      const read = fs.readSync(handle, chunk);
      if (read === 0) break;
      await engine.parse(chunk.subarray(0, read));
    }
  } finally {
    fs.closeSync(handle);
  }
  await engine.notifyEof();
}

// JSON.stringify has neither 64-bit numbers nor infinities.
function json(value) {
  if (typeof value === 'bigint') return value.toString();
  if (value instanceof Uint8Array) return JSON.stringify(Array.from(value));
  if (typeof value === 'number' && !Number.isFinite(value)) return JSON.stringify(String(value));
  return JSON.stringify(value ?? null);
}

async function query(sql) {
  const result = await engine.query(sql);
  const columns = result.columns();
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push('[' + columns.map((column) => json(row.get(column))).join(',') + ']');
  }
  return `{"columns":${JSON.stringify(columns)},"rows":[${rows.join(',')}]}`;
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  try {
    const request = JSON.parse(line);
    if (request.load !== undefined) {
      await load(request.load);
      say('{"error":null}');
    } else {
      say(await query(request.query));
    }
  } catch (error) {
    say(JSON.stringify({ error: String(error?.message ?? error) }));
  }
}
process.exit(0);
