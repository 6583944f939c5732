// words

// findings of one kind at the same lines of one launch, as of a race that many programs take part in
function alike() {
  const groups = {};
  for (const one of data.findings) {
    const places = data.launches[one.launch] ? array(data.launches[one.launch].events.place) : [];
    const key = one.event < 0 ? one.text : [one.launch, one.text.split(":")[0], places[one.event], places[one.other]];
    (groups[key] ??= []).push(one);
  }
  return Object.values(groups);
}

const counted = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

function describePage() {
  const groups = alike();
  const errors = groups.filter(([one]) => one.is_error).length, others = groups.length - errors;
  const parts = [data.launches.length === 1 ? "1 launch" : `${data.launches.length} launches`];
  if (data.left_out.launches) parts.push(`${data.left_out.launches} more are not on this page`);
  parts.push(errors ? counted(errors, "error") : "no error");
  if (others) parts.push(counted(others, "remark"));
  $("#summary").textContent = `${parts.join(", ")}.`;
  $("#findings").hidden = !data.findings.length;
  for (const [finding, ...more] of groups) {
    const [first, ...rest] = finding.text.split("\n");
    const item = make("li", "", { className: finding.is_error ? "error" : "remark" });
    item.append(make("button", first, { type: "button", disabled: finding.launch < 0, onclick: () => open(finding) }));
    if (more.length) item.append(make("p", `and ${counted(more.length, "program")} more at the same line`));
    if (rest.length) item.append(details(rest.join("\n"), groups.length <= 2));
    $("#findings ol").append(item);
  }
  data.launches.forEach((launch, number) => {
    const button = make("button", `${number + 1}. ${launch.kernel} ${tuple(launch.grid)}`, { type: "button" });
    button.onclick = () => (choose(number), draw());
    $("#launches").append(button);
  });
  $("#launches").hidden = data.launches.length < 2;
}

function details(text, isOpen) {
  const box = make("details", "", { open: isOpen });
  box.append(make("summary", "in full"), make("pre", text));
  return box;
}

const WEIGHTS = { loaded: 1, stored: 1, updated: 2 }; // an atomic update reads and writes

function bytes(tensor) {
  const actions = Object.keys(tensor.moved);
  const moved = sum(actions.map((action) => WEIGHTS[action] * tensor.moved[action]));
  return [moved, sum(actions.map((action) => WEIGHTS[action] * tensor.distinct[action] * tensor.itemsize))];
}

const ratio = (moved, least) => (least ? `${Number((moved / least).toPrecision(3))} ×` : "–");

// "3 programs", "12 programs: 3 × 4"
function inWords(grid) {
  const sizes = grid.slice(0, 1 + grid.findLastIndex((size, i) => size > 1 || i === 0)), n = counted(product(grid), "program");
  return sizes.length > 1 ? `${n}: ${sizes.join(" × ")}` : n;
}

function describeLaunch() {
  const launch = state.launch, totals = launch.tensors.map(bytes);
  const [moved, least] = [0, 1].map((i) => sum(totals.map((total) => total[i])));
  $("#launch").hidden = false;
  $("#launch h2").textContent = `Launch ${state.number + 1}: ${launch.kernel}`;
  const flops = Object.entries(launch.flops).map(([type, count]) => `${quantity(count, "")} ${type}`);
  const facts = {
    grid: inWords(launch.grid),
    "bytes moved": quantity(moved, "B"),
    "least possible": quantity(least, "B"),
    "moved / least": ratio(moved, least),
    ...(flops.length ? { "FLOPs of tl.dot": flops.join(", ") } : {}),
  };
  const entries = Object.entries(facts).map(([name, value]) => {
    const entry = make("div");
    entry.append(make("dt", name), make("dd", value));
    return entry;
  });
  if (launch.where.length) {
    const entry = make("div");
    entry.append(make("dt", "launched at"), make("dd", launch.where[0].join(":"), { className: "long" }));
    entries.push(entry);
  }
  $("#launch .facts").replaceChildren(...entries);
  const head = ["tensor", "type and shape", "loaded", "stored", "updated", "least possible", "moved / least"];
  const rows = launch.tensors.map((tensor, i) => [
    tensor.name, `${tensor.dtype} ${tuple(tensor.shape)}`,
    ...["loaded", "stored", "updated"].map((action) => (tensor.moved[action] ? quantity(tensor.moved[action], "B") : "")),
    quantity(totals[i][1], "B"), ratio(...totals[i]),
  ]);
  const used = head.map((_, i) => i !== 4 || rows.some((row) => row[4]));
  const line = (cells, tag) => {
    const row = make("tr");
    row.append(...cells.flatMap((cell, i) => (used[i] ? [make(tag, cell, { className: i > 1 ? "n" : "" })] : [])));
    return row;
  };
  const caption = make("caption", "Least possible: every element that was touched is loaded once and stored once.");
  $("#traffic").replaceChildren(caption, make("thead"), make("tbody"));
  $("#traffic thead").append(line(head, "th"));
  $("#traffic tbody").append(...rows.map((row) => line(row, "td")));
}

function lineOf(event) {
  const found = data.places[state.launch.column.place[event]]?.[0];
  return found ? `line ${found[1]}` : "";
}

function says(event) {
  const { kind, tensor, note, low, high, nans } = state.launch.column;
  if (kind[event] > UPDATE) return kind[event] === 3 ? `multiplies ${data.notes[note[event]]}` : data.notes[note[event]] ?? "";
  if (tensor[event] < 0) return `${VERBS[kind[event]]} at addresses that are no argument's`;
  const name = state.launch.tensors[tensor[event]].name, lanes = state.launch.cells(event);
  if (!lanes) return `${VERBS[kind[event]]} ${name}; which elements is not kept`;
  const count = [0, 0, 0, 0];
  for (const one of lanes.states) count[one]++;
  const parts = [`${count[ACTIVE]} active`];
  if (count[MASKED]) parts.push(`${count[MASKED]} masked out`);
  if (count[OUTSIDE]) parts.push(`${count[OUTSIDE]} outside the tensor`);
  const shape = lanes.shape.length === 1 && lanes.shape[0] === 1 ? "one element" : `${lanes.shape.join(" × ")} elements`;
  let text = `${VERBS[kind[event]]} ${shape} of ${name}: ${parts.join(", ")}`;
  if (!Number.isNaN(low[event])) text += `; values from ${shown(low[event])} to ${shown(high[event])}`;
  return text + (nans[event] ? `; ${nans[event]} NaN` : "");
}

function tell() {
  const told = $("#told");
  if (!isOne()) {
    const finding = state.finding?.event < 0 ? state.finding.text.split("\n")[0] : "";
    told.textContent = finding || "All programs. Point at an element to see who touched it, choose it for the list.";
    return;
  }
  const who = `Program ${tuple(state.launch.id(state.program))}`, steps = state.launch.steps.get(state.program);
  if (!steps) {
    const isCut = state.launch.programs_left_out;
    told.textContent = isCut
      ? `${who}: its steps are not kept, as the page would be too large`
      : `${who} did nothing: the launch ended before it, or it touches no tensor`;
    return;
  }
  const event = current();
  told.textContent = `${who}, step ${state.step + 1} of ${steps.length}, ${lineOf(event)}: ${says(event)}`;
  const found = state.finding?.event === event ? state.finding : ours().find((one) => one.event === event);
  if (found) told.append(make("br"), make("span", found.text.split("\n")[0], { className: found.is_error ? "bad" : "" }));
  if (state.other >= 0) {
    const id = tuple(state.launch.id(state.launch.column.program[state.other]));
    const there = make("button", `to program ${id}, ${lineOf(state.other)}`, { type: "button" });
    there.onclick = () => goToEvent(state.other, event);
    told.append(make("br"), make("span", `Green: program ${id} ${says(state.other)} `), there);
  }
}

function legend() {
  const keys = isOne()
    ? [["--read", "read now"], ["--store", "stored now"], ["--update", "updated now"], ["hatch", "masked out"],
       ["--fault", state.other >= 0 ? "both programs, or outside" : "outside the tensor"], ["--soft", "not touched"]]
    : [["--soft", "not touched"], ["hatch", "never written"]];
  if (isOne()) keys.splice(3, 0, ["faint", "paler: before this step"]);
  if (isOne() && state.other >= 0) keys.push(["--good-other", "the other program"]);
  const by = $("#by select").value;
  if (!isOne() && by === "last") keys.unshift(["programs", "a colour for each program"]);
  if (!isOne() && (by === "read" || by === "written")) {
    keys.unshift(["ramp", `darker: more often, at most ${times(mostTouched(by))}`]);
  }
  if (!isOne() && by === "value") keys.unshift(["--store", "above zero"], ["--read", "below zero"], ["--fault", "NaN"]);
  $("#legend").replaceChildren(
    ...keys.map(([key, text]) => {
      const item = make("span", ""), swatch = make("i");
      if (key.startsWith("--")) swatch.style.background = css(key);
      else swatch.style.backgroundImage = {
        hatch: `repeating-linear-gradient(45deg, ${css("--quiet")} 0 1px, transparent 1px 4px)`,
        faint: `linear-gradient(90deg, ${["--read", "--store"].map((one) => rgb(pale(css(one)))).join(", ")})`,
        programs: `linear-gradient(90deg, ${[0, 1, 2, 3].map((i) => rgb(hue(i))).join(", ")})`,
        ramp: `linear-gradient(90deg, ${rgb(ramp(0.1))}, ${rgb(ramp(1))})`,
      }[key];
      item.append(swatch, text);
      return item;
    }),
  );
}

// the source

function drawSource() {
  const box = $("#source");
  box.replaceChildren();
  for (const number of state.launch.sources) {
    const { file, first, lines } = data.sources[number], pre = make("pre");
    lines.forEach((text, i) => {
      const line = make("code");
      line.dataset.at = `${number}:${first + i}`;
      line.append(make("span", `${String(first + i).padStart(4)} `, { className: "no" }));
      for (const finding of ours()) {
        const events = [finding.event, finding.other].filter((event) => event >= 0);
        if (!events.some((event) => isAt(event, number, first + i))) continue;
        const label = `${finding.is_error ? "error" : "remark"} ${data.findings.indexOf(finding) + 1}`;
        line.append(make("button", label, { type: "button", onclick: () => open(finding) }));
      }
      line.append(text);
      pre.append(line);
    });
    box.append(make("p", file, { className: "quiet" }), pre);
  }
}

const isAt = (event, source, line) => {
  const [innermost] = data.places[state.launch.column.place[event]] ?? [];
  return innermost?.[0] === source && innermost[1] === line;
};

function markSource() {
  const event = isOne() ? current() : -1;
  const [now = "", ...callers] = (data.places[state.launch.column.place[event]] ?? []).map((at) => at.join(":"));
  const [other = ""] = (data.places[state.launch.column.place[state.other]] ?? []).map((at) => at.join(":"));
  const beside = isOne() ? [...callers, other] : [];
  for (const line of document.querySelectorAll("#source code")) {
    line.classList.toggle("now", line.dataset.at === now);
    line.classList.toggle("other", line.dataset.at !== now && beside.includes(line.dataset.at));
    if (line.dataset.at === now) {
      const box = $("#source"), top = line.getBoundingClientRect().top - box.getBoundingClientRect().top;
      if (top < 0 || top > box.clientHeight - 40) box.scrollTop += top - box.clientHeight / 3;
    }
  }
}
