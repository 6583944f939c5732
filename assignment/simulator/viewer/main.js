// what the reader has chosen

const state = { launch: null, number: -1, program: 0, step: 0, other: -1, finding: null };
const launches = [];
const isOne = () => $("input[name=mode]:checked").value === "one";
const ours = () => data.findings.filter((one) => one.launch === state.number);
const current = () => state.launch.steps.get(state.program)?.[state.step] ?? -1;

function choose(number) {
  if (state.number === number) return;
  launches[number] ??= new Launch(data.launches[number]);
  Object.assign(state, { launch: launches[number], number, program: 0, step: 0, other: -1, finding: null });
  [...$("#launches").children].forEach((button, i) => button.setAttribute("aria-pressed", i === number));
  describeLaunch();
  drawSource();
  layOutTensors();
  $("#touches").hidden = true;
}

function go(program, step, other = -1) {
  const count = state.launch.steps.get(program)?.length ?? 0;
  Object.assign(state, { program, step: Math.max(0, Math.min(step, count - 1)), other });
  $("input[name=mode][value=one]").checked = true;
  draw();
}

function goToEvent(event, other = -1) {
  const program = state.launch.column.program[event];
  go(program, state.launch.steps.get(program).indexOf(event), other);
}

function show(finding) {
  choose(finding.launch);
  state.finding = finding;
  if (finding.event >= 0) goToEvent(finding.event, finding.other);
  else showAll("written");
}

function open(finding) {
  show(finding);
  const tensor = finding.event >= 0 ? state.launch.column.tensor[finding.event] : finding.tensor;
  $("#told").scrollIntoView({ block: "start" });
  if (finding.event < 0 && tensor >= 0) $("#tensors").children[tensor].scrollIntoView({ block: "nearest" });
}

function showAll(by) {
  $("input[name=mode][value=all]").checked = true;
  if (by) $("#by select").value = by;
  state.other = -1;
  draw();
}

// pointing and choosing

function cellAt(view, event) {
  const box = view.canvas.getBoundingClientRect();
  const x = Math.floor(((event.clientX - box.left) / box.width) * view.width);
  const y = Math.floor(((event.clientY - box.top) / box.height) * view.height);
  return Math.max(0, Math.min(y, view.height - 1)) * view.width + Math.max(0, Math.min(x, view.width - 1));
}

function nameOf(view, cell) {
  const index = view.index(cell);
  return index.length ? `${view.tensor.name}[${index.join(", ")}]` : view.tensor.name;
}

function hover(view, number, event) {
  const cell = cellAt(view, event), { tensor } = view, i = view.element[cell];
  const lines = [i < 0 ? `${nameOf(view, cell)} would be here: outside the tensor` : nameOf(view, cell)];
  if (i >= 0) lines.push(...valueLines(tensor, i), ...touchLines(tensor, i));
  const lanes = isOne() && state.launch.column.tensor[current()] === number ? state.launch.cells(current()) : null;
  const lane = lanes ? lanes.cells.indexOf(cell) : -1;
  if (lane >= 0) lines.push(`this line: ${["", "active", "active, and outside", "masked out"][lanes.states[lane]]}`);
  showTip(event, lines.join("\n"));
}

function showTip(event, text) {
  const tip = $("#tip");
  tip.textContent = text;
  tip.hidden = false;
  const right = event.clientX + 16 + tip.offsetWidth > innerWidth;
  tip.style.left = `${Math.max(4, right ? event.clientX - 12 - tip.offsetWidth : event.clientX + 16)}px`;
  tip.style.top = `${Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 4)}px`;
}

function valueLines(tensor, i) {
  const at = (ref) => (ref && i < ref.count ? shown(array(ref)[i]) : null);
  const isFresh = tensor.fresh && array(tensor.fresh)[i];
  const before = isFresh ? "never written" : at(tensor.before), after = at(tensor.after);
  if (tensor.unwritten && array(tensor.unwritten)[i]) return ["never written"];
  if (before === null) return ["value not kept, as the page would be too large"];
  return after === null || after === before ? [`value ${before}`] : [`value ${after}, before the launch ${before}`];
}

function touchLines(tensor, i) {
  return Object.keys(tensor.counts).map((action) => {
    const count = array(tensor.counts[action])[i], last = array(tensor.last[action])[i];
    const verb = { loaded: "read", stored: "stored", updated: "updated" }[action];
    return count ? `${verb} ${times(count)}, the last time by program ${tuple(state.launch.id(last - 1))}` : `never ${verb}`;
  });
}

function listTouches(number, cell) {
  const view = state.launch.views[number], { column } = state.launch, box = $("#touches"), found = [];
  for (let event = 0; event < column.tensor.length && found.length <= 500; event++) {
    if (column.tensor[event] !== number) continue;
    const lanes = state.launch.cells(event), lane = lanes ? lanes.cells.indexOf(cell) : -1;
    if (lane >= 0 && lanes.states[lane] !== MASKED) found.push(event);
  }
  found.sort((a, b) => column.program[a] - column.program[b] || a - b);
  const list = make("ul");
  for (const event of found.slice(0, CHUNK)) {
    const text = `program ${tuple(state.launch.id(column.program[event]))} ${VERBS[column.kind[event]]} it, ${lineOf(event)}`;
    const item = make("li");
    item.append(make("button", text, { type: "button", onclick: () => goToEvent(event) }));
    list.append(item);
  }
  const count = found.length > CHUNK ? `, the first ${CHUNK} of ${found.length}` : "";
  const said = found.length ? `who touched it${count}` : "nobody touched it";
  box.replaceChildren(make("h3", `${nameOf(view, cell)}: ${said}`), list);
  box.hidden = false;
}

// begin

function listen() {
  const modes = document.querySelectorAll("input[name=mode]");
  modes.forEach((input) => (input.onchange = () => (isOne() ? go(state.program, state.step) : showAll())));
  $("#by select").onchange = () => draw();
  $("#step").oninput = () => go(state.program, Number($("#step").value));
  $("#back").onclick = () => go(state.program, state.step - 1);
  $("#on").onclick = () => go(state.program, state.step + 1);
  const count = () => product(state.launch.grid);
  $("#grid").onclick = (event) => {
    const { wide, cell } = gridShape(), box = $("#grid").getBoundingClientRect(), by = $("#grid").width / box.width;
    const [column, row] = [event.clientX - box.left, event.clientY - box.top].map((at) => Math.floor((at * by) / cell));
    const program = row * wide + column;
    if (program < count()) go(program, 0);
  };
  $("#grid").onkeydown = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: gridShape().wide, ArrowUp: -gridShape().wide }[event.key];
    if (!by) return;
    event.preventDefault();
    if (state.program + by >= 0 && state.program + by < count()) go(state.program + by, 0);
  };
  const again = () => ((palette = {}), layOutTensors(), draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  let waiting;
  addEventListener("resize", () => (clearTimeout(waiting), (waiting = setTimeout(again, 150))));
}

await unpack();
describePage();
choose(0);
listen();
draw();
const begun = data.findings.find((one) => one.is_error && data.launches[one.launch]);
if (begun) show(begun);
document.documentElement.dataset.ready = "yes";
