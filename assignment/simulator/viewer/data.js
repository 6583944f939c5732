// The page of a script's launches. The data are model.py's; what a script wrote is only ever text.
const $ = (selector) => document.querySelector(selector);
const make = (tag, text = "", more = {}) => Object.assign(document.createElement(tag), { textContent: text }, more);
const product = (sizes) => sizes.reduce((a, b) => a * b, 1);
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const tuple = (numbers) => `(${[...numbers].join(", ")}${numbers.length === 1 ? "," : ""})`;
const [LOAD, STORE, UPDATE] = [0, 1, 2];
const VERBS = ["loads", "stores", "updates"];
const COLOURS = ["--read", "--store", "--update"];
const ACTIVE = 1, OUTSIDE = 2, MASKED = 3; // states of a lane
const EARLIER = [1, 2, 4], NOW = 8, OUT = 16, OFF = 32, OTHER = 64; // of a cell, as bits
const MOST_PX = 24, HIGH_PX = 440; // of an element, and of a tensor
const CHUNK = 24; // accesses that are listed

// the data

const TYPES = {
  u1: Uint8Array, i1: Int8Array, i2: Int16Array, i4: Int32Array,
  f4: Float32Array, f8: Float64Array, bf16: Uint16Array,
};
let data, block, start;

async function unpack() {
  const packed = Uint8Array.from(atob($("#data").textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  block = await new Response(stream).arrayBuffer();
  const length = new DataView(block).getUint32(0, true);
  start = 4 + length;
  data = JSON.parse(new TextDecoder().decode(new Uint8Array(block, 4, length)));
}

function array(ref) {
  const values = new TYPES[ref.type](block, start + ref.at, ref.count);
  if (ref.type !== "bf16") return values;
  const bits = Uint32Array.from(values, (value) => value * 65536);
  return new Float32Array(bits.buffer);
}

function quantity(count, unit) {
  let prefix = 0;
  for (; count >= 999.5 && prefix < 4; prefix++) count /= 1000;
  return `${Number(count.toPrecision(3))} ${["", "K", "M", "G", "T"][prefix]}${unit}`;
}

const shown = (value) => String(Number.isFinite(value) ? Number(value.toPrecision(5)) : value);
const times = (count) => (count === 1 ? "once" : `${count} times`);
