// Loads traces into Perfetto's trace processor and answers SQL about them.
//
//     node trace_processor.mjs DIRECTORY
//
// DIRECTORY contains the trace processor that `cargo xtask test` fetches: the WebAssembly module, the
// glue code that Perfetto compiles for a browser's worker, and the library for its protocol.
//
// Each line of stdin is a request in JSON, and each line of stdout is the answer to one:
//
//     {"load": PATH}      {"error": null}, or {"error": TEXT} if the file cannot be loaded
//     {"query": SQL}      {"columns": [...], "rows": [[...], ...]} or {"error": TEXT}
//
// A loaded file replaces the previous one. Integers are written with all their digits. Numbers that
// JSON does not have are written as the texts "NaN", "Infinity" and "-Infinity".
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

// Only answers may go to stdout, so what the module prints goes to stderr.
const say = (text) => fs.writeSync(1, text + '\n');
console.log = console.info = console.warn = (...words) => {
  // The library warns about each field of a result that is newer than the library.
  if (!/Unexpected QueryResult field/.test(String(words[0]))) console.error(...words);
};

// Globals that a browser's worker has and Node.js does not have.
globalThis.self = globalThis;
globalThis.WorkerGlobalScope ??= function WorkerGlobalScope() {};
Object.defineProperty(globalThis, 'location', {
  value: { href: pathToFileURL(directory).href }, writable: true, configurable: true,
});

// The glue code looks for a 64-bit module in its own folder and fetches it by name. This changes the
// glue code to use the 32-bit module, which is the only one here, and to store its bridge in a global.
globalThis.traceProcessorWasm = new Uint8Array(fs.readFileSync(directory + 'trace_processor.wasm'));
let glue = fs.readFileSync(directory + 'engine_bundle.node.js', 'utf8');
for (const [before, after] of [
  ['this.useMemory64 = hasMemory64Support();', 'this.useMemory64 = false;'],
  ['locateFile: (s) => s,', 'locateFile: (s) => s, wasmBinary: globalThis.traceProcessorWasm,'],
  ['const wasmBridge = new wasm_bridge_1.WasmBridge();',
   'const wasmBridge = globalThis.traceProcessorBridge = new wasm_bridge_1.WasmBridge();'],
]) {
  if (glue.split(before).length !== 2) {
    throw new Error(`engine_bundle.node.js: unknown version, it does not contain ${before} exactly once`);
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
// The module compiles in the background. When it is ready, the bridge has a buffer.
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

// JSON.stringify supports neither 64-bit integers nor infinities.
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
