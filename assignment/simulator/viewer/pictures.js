// colours

let palette = {};
const css = (name) => (palette[name] ??= getComputedStyle(document.documentElement).getPropertyValue(name).trim());
const parse = (colour) => (Array.isArray(colour) ? colour : [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16)));
const mix = (a, b, share) => parse(a).map((value, i) => Math.round(value + (parse(b)[i] - value) * share));
const pale = (colour) => mix(css("--soft"), colour, 0.4);
const rgb = (colour) => `rgb(${parse(colour).join(" ")})`;
const ramp = (share) => mix(css("--soft"), css("--read"), 0.15 + 0.85 * share);

function hue(program) {
  const h = (program * 137.508 + 210) % 360, s = 0.55, l = program % 2 ? 0.62 : 0.48;
  const f = (n) => {
    const k = (n + h / 30) % 12;
    return l - s * Math.min(l, 1 - l) * Math.max(-1, Math.min(k - 3, 9 - k, 1));
  };
  return [f(0), f(8), f(4)].map((value) => Math.round(255 * value));
}

function pattern(context, colour) {
  const tile = make("canvas", "", { width: 6, height: 6 }), pen = tile.getContext("2d");
  pen.strokeStyle = colour;
  pen.lineWidth = 1.2;
  for (const at of [-6, 0, 6]) pen.moveTo(at, 6), pen.lineTo(at + 6, 0);
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

// pictures

function mostTouched(by) {
  const actions = by === "read" ? ["loaded"] : ["stored", "updated"];
  const maps = state.launch.tensors.flatMap(({ counts }) => actions.flatMap((action) => counts[action] ?? []));
  return maps.reduce((most, map) => array(map).reduce((a, b) => Math.max(a, b), most), 0);
}

function layOutTensors() {
  const views = state.launch.views, room = Math.max(200, $("#tensors").clientWidth - 2);
  const fits = views.map((view) => Math.min(room / view.width, HIGH_PX / view.height, MOST_PX));
  const common = Math.min(...fits);
  $("#tensors").replaceChildren(
    ...views.map((view, i) => {
      const seen = Math.max(common, Math.min(fits[i], 48 / Math.min(view.width, view.height), 18));
      view.scale = seen >= 1 ? Math.floor(seen) : seen;
      return figure(view, i, view.scale / (common >= 1 ? Math.floor(common) : common));
    }),
  );
}

function figure(view, number, enlarged) {
  const { tensor } = view, box = make("figure"), scroll = make("div", "", { className: "scroll", tabIndex: 0 });
  const [width, height] = [view.width, view.height].map((size) => Math.ceil(size * view.scale));
  view.canvas = make("canvas", "", { width, height });
  view.canvas.dataset.scale = view.scale;
  view.canvas.setAttribute("role", "img");
  view.canvas.setAttribute("aria-label", `${tensor.name} ${tuple(tensor.shape)}`);
  view.canvas.onmousemove = (event) => hover(view, number, event);
  view.canvas.onmouseleave = () => ($("#tip").hidden = true);
  view.canvas.onclick = (event) => listTouches(number, cellAt(view, event));
  const caption = make("figcaption");
  const notes = [];
  if (view.isVector && view.height > 1) notes.push(`${view.n} elements in rows of ${view.width}`);
  if (tensor.drawn[0] * tensor.drawn[1] < view.n) notes.push("not all of its elements are drawn");
  if (enlarged > 1.05) notes.push(`enlarged ${Number(enlarged.toPrecision(2))} × beside the others`);
  if (tensor.shape.length > 2) notes.push("one matrix below the other");
  caption.append(make("code", tensor.name), ` ${tensor.dtype} ${tuple(tensor.shape)}`);
  if (notes.length) caption.append(make("br"), make("span", notes.join("; "), { className: "quiet" }));
  scroll.append(view.canvas);
  box.append(caption, scroll);
  return box;
}

function draw() {
  const isStep = isOne(), steps = state.launch.steps.get(state.program);
  $("#by").hidden = isStep;
  $("#steps").hidden = !isStep || !steps;
  Object.assign($("#step"), { max: (steps?.length ?? 1) - 1, value: state.step });
  $("#back").disabled = state.step <= 0;
  $("#on").disabled = state.step >= (steps?.length ?? 1) - 1;
  drawGrid();
  drawValues();
  state.launch.views.forEach((view, number) => (isStep ? drawStep(view, number) : drawAll(view)));
  tell();
  legend();
  markSource();
}

// paint cells by a function from a cell to its colour, and hatch those that `hatched` chooses
function paint(view, colourOf, hatched, hatch) {
  const { width, height, scale, canvas, element } = view, pen = canvas.getContext("2d");
  const small = make("canvas", "", { width, height }), image = new ImageData(width, height);
  for (let cell = 0; cell < element.length; cell++) {
    const colour = colourOf(cell);
    if (colour) image.data.set([...parse(colour), 255], 4 * cell);
  }
  small.getContext("2d").putImageData(image, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.imageSmoothingEnabled = scale < 1;
  pen.drawImage(small, 0, 0, width * scale, height * scale);
  pen.fillStyle = pattern(pen, hatch);
  pen.beginPath();
  for (let cell = 0; cell < element.length; cell++) {
    if (hatched(cell)) pen.rect((cell % width) * scale, Math.floor(cell / width) * scale, scale, scale);
  }
  pen.fill();
  outline(view, pen);
}

// lines between elements, and around what is the tensor
function outline({ width, scale, element }, pen) {
  const isIn = (cell, ok) => ok && element[cell] >= 0;
  const [thin, thick] = [new Path2D(), new Path2D()];
  for (let cell = 0; cell < element.length; cell++) {
    const [x, y] = [(cell % width) * scale, Math.floor(cell / width) * scale], here = element[cell] >= 0;
    const left = isIn(cell - 1, cell % width), up = isIn(cell - width, cell >= width);
    const right = isIn(cell + 1, (cell + 1) % width), down = isIn(cell + width, cell + width < element.length);
    if (!here) continue;
    if (scale >= 6) thin.rect(x, y, scale, scale);
    if (!left) thick.moveTo(x + 0.5, y), thick.lineTo(x + 0.5, y + scale);
    if (!up) thick.moveTo(x, y + 0.5), thick.lineTo(x + scale, y + 0.5);
    if (!right) thick.moveTo(x + scale - 0.5, y), thick.lineTo(x + scale - 0.5, y + scale);
    if (!down) thick.moveTo(x, y + scale - 0.5), thick.lineTo(x + scale, y + scale - 0.5);
  }
  pen.lineWidth = 0.5;
  pen.strokeStyle = css("--page");
  pen.stroke(thin);
  pen.lineWidth = 1.5;
  pen.strokeStyle = css("--text");
  pen.stroke(thick);
}

function merged(tensor, kind, actions) {
  const maps = actions.flatMap((action) => (tensor[kind][action] ? [array(tensor[kind][action])] : []));
  return (i) => maps.reduce((found, map) => (kind === "last" ? found || map[i] : found + map[i]), 0);
}

function drawAll(view) {
  const { tensor, element } = view, by = $("#by select").value;
  const unwritten = tensor.unwritten && array(tensor.unwritten);
  const lost = (cell) => unwritten && element[cell] >= 0 && unwritten[element[cell]];
  const isFound = ours().some((one) => one.event < 0 && state.launch.views[one.tensor] === view);
  let of;
  if (by === "value") of = valueColours(finalValues(tensor));
  else if (by === "last") {
    const last = merged(tensor, "last", ["stored", "updated", "loaded"]);
    of = (i) => last(i) && hue(last(i) - 1);
  } else {
    const counts = merged(tensor, "counts", by === "read" ? ["loaded"] : ["stored", "updated"]);
    const most = mostTouched(by) || 1;
    of = (i) => counts(i) && ramp(counts(i) / most);
  }
  const colourOf = (cell) => (element[cell] < 0 ? null : of(element[cell]) || css("--soft"));
  paint(view, colourOf, lost, css(isFound ? "--fault" : "--quiet"));
}

function drawStep(view, number) {
  const { column, steps } = state.launch, bits = new Uint8Array(view.element.length);
  const add = (event, of) => {
    const lanes = column.tensor[event] === number ? state.launch.cells(event) : null;
    lanes?.cells.forEach((cell, lane) => cell >= 0 && (bits[cell] |= of(lanes.states[lane])));
  };
  const own = steps.get(state.program) ?? [];
  for (let i = 0; i < state.step; i++) add(own[i], (of) => (of === ACTIVE ? EARLIER[column.kind[own[i]]] : 0));
  const event = current();
  if (event >= 0) add(event, (of) => [0, NOW, OUT, OFF][of]);
  if (state.other >= 0) add(state.other, (of) => (of === ACTIVE ? OTHER : 0));
  const colour = css(COLOURS[column.kind[event]] ?? "--read");
  const faint = [LOAD, STORE, UPDATE].map((kind) => pale(css(COLOURS[kind])));
  const of = (cell) => {
    const bit = bits[cell];
    if (bit & OUT || (bit & NOW && bit & OTHER)) return css("--fault");
    if (bit & NOW) return colour;
    if (bit & OTHER) return css("--good-other");
    const kind = [UPDATE, STORE, LOAD].find((one) => bit & EARLIER[one]);
    return kind !== undefined ? faint[kind] : view.element[cell] >= 0 ? css("--soft") : null;
  };
  paint(view, of, (cell) => bits[cell] & OFF && !(bits[cell] & NOW), css("--quiet"));
}

// the grid of programs

const gridShape = () => {
  const [x, y, z] = state.launch.grid, isLine = y * z === 1, wide = isLine ? Math.min(x, 32) : x;
  const high = isLine ? Math.ceil(x / wide) : y * z;
  return { wide, high, cell: Math.max(3, Math.min(20, Math.floor(640 / wide), Math.floor(200 / high))) };
};

function drawGrid() {
  const { wide, high, cell } = gridShape(), canvas = $("#grid"), pen = canvas.getContext("2d");
  Object.assign(canvas, { width: wide * cell, height: high * cell });
  const events = ours().flatMap((one) => [one.event, one.other]).filter((event) => event >= 0);
  const wrong = new Set(events.map((event) => state.launch.column.program[event]));
  for (let program = 0; program < product(state.launch.grid); program++) {
    const [x, y] = [(program % wide) * cell, Math.floor(program / wide) * cell];
    const isKnown = state.launch.steps.has(program) || state.launch.programs_left_out;
    pen.fillStyle = isKnown ? rgb(hue(program)) : css("--soft");
    pen.fillRect(x, y, cell - 1, cell - 1);
    if (wrong.has(program)) {
      pen.fillStyle = css("--fault");
      pen.beginPath();
      pen.arc(x + cell / 2, y + cell / 2, cell / 4, 0, 7);
      pen.fill();
    }
    if (isOne() && program === state.program) {
      pen.strokeStyle = css("--text");
      pen.lineWidth = 2;
      pen.strokeRect(x + 1, y + 1, cell - 3, cell - 3);
    }
  }
  canvas.setAttribute("aria-valuetext", `program ${tuple(state.launch.id(state.program))}`);
  canvas.setAttribute("aria-valuenow", state.program);
  canvas.setAttribute("aria-valuemin", 0);
  canvas.setAttribute("aria-valuemax", product(state.launch.grid) - 1);
}
