// values: their colours, how they are spread, and the two sides and the result of a matrix product

const BARS = 32, TILE_PX = 160;

// what a tensor holds after the launch; NaN where nobody wrote, and as far as values are kept
function finalValues(tensor) {
  const values = array(tensor.after ?? tensor.before), unwritten = tensor.unwritten && array(tensor.unwritten);
  return { values, isKnown: (i) => i < values.length && !unwritten?.[i] };
}

function valueColours({ values, isKnown }) {
  let most = 0;
  values.forEach((value, i) => isKnown(i) && Number.isFinite(value) && (most = Math.max(most, Math.abs(value))));
  return (i) => {
    if (!isKnown(i)) return null;
    if (Number.isNaN(values[i])) return css("--fault");
    const share = Math.min(1, Math.abs(values[i]) / (most || 1));
    return mix(css("--page"), css(values[i] < 0 ? "--read" : "--store"), 0.08 + 0.92 * share);
  };
}

// counts of finite values between the least and the largest
function spread({ values, isKnown }) {
  const found = [...values].filter((value, i) => isKnown(i) && Number.isFinite(value));
  const [low, high] = found.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
  const counts = new Array(BARS).fill(0);
  for (const value of found) counts[Math.min(BARS - 1, Math.floor(((value - low) / (high - low || 1)) * BARS))]++;
  return { counts, low, high, zeros: found.filter((value) => !value).length, n: found.length };
}

function histogram(known) {
  const { counts, low, high, zeros, n } = spread(known), box = make("figure", "", { className: "spread" });
  if (!n) return box;
  const canvas = make("canvas", "", { width: BARS * 6, height: 60 }), pen = canvas.getContext("2d");
  const most = Math.max(...counts);
  counts.forEach((count, i) => {
    const middle = low + ((i + 0.5) / BARS) * (high - low), tall = Math.ceil((58 * count) / most);
    pen.fillStyle = css(middle < 0 ? "--read" : "--store");
    pen.fillRect(i * 6, 60 - tall, 5, tall);
  });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "how values are spread");
  box.append(canvas, make("figcaption", `${shown(low)} to ${shown(high)}; ${zeros} of ${n} are zero`));
  return box;
}

// under each tensor, how its values are spread; and in a step that multiplies, what
function drawValues() {
  document.querySelectorAll(".spread").forEach((one) => one.remove());
  if (!isOne() && $("#by select").value === "value") {
    [...$("#tensors").children].forEach((box, i) => box.append(histogram(finalValues(state.launch.tensors[i]))));
  }
  const tiles = isOne() ? state.launch.tiles[current()] : null;
  $("#tiles").hidden = !tiles;
  if (!tiles) return;
  const [left, right] = tiles.map(({ shape, values }) => ({ shape, values: array(values) }));
  const sides = [["left", left], ["right", right], ["left · right", multiplied(left, right)]];
  $("#tiles").replaceChildren(...sides.flatMap(([name, matrix]) => (matrix ? [tileFigure(name, matrix)] : [])));
}

// null of a product of several matrices at once
function multiplied(left, right) {
  const [m, k] = left.shape, [rows, n] = right.shape;
  if (rows !== k) return null;
  const values = new Float32Array(m * n);
  for (let i = 0; i < m; i++) {
    for (let j = 0; j < k; j++) {
      const factor = left.values[i * k + j];
      for (let l = 0; l < n; l++) values[i * n + l] += factor * right.values[j * n + l];
    }
  }
  return { shape: [m, n], values };
}

function tileFigure(name, { shape: [rows, cols], values }) {
  const scale = Math.max(1, Math.floor(TILE_PX / Math.max(rows, cols)));
  const colour = valueColours({ values, isKnown: () => true });
  const canvas = make("canvas", "", { width: cols * scale, height: rows * scale }), pen = canvas.getContext("2d");
  values.forEach((_, i) => {
    pen.fillStyle = rgb(colour(i));
    pen.fillRect((i % cols) * scale, Math.floor(i / cols) * scale, scale, scale);
  });
  canvas.onmousemove = (event) => {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const [col, row] = [x, y].map((at) => Math.max(0, Math.floor(at / scale)));
    if (row < rows && col < cols) showTip(event, `${name}[${row}, ${col}]\nvalue ${shown(values[row * cols + col])}`);
  };
  canvas.onmouseleave = () => ($("#tip").hidden = true);
  const figure = make("figure");
  figure.append(make("figcaption", `${name} ${rows} × ${cols}`), canvas);
  return figure;
}
