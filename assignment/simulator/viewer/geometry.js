// a launch, and where its tensors and accesses are drawn

class Launch {
  constructor(told) {
    Object.assign(this, told);
    this.column = Object.fromEntries(Object.entries(told.events).map(([name, ref]) => [name, array(ref)]));
    this.steps = new Map(); // of each program
    this.column.program.forEach((program, event) => {
      if (!this.steps.has(program)) this.steps.set(program, []);
      this.steps.get(program).push(event);
    });
    this.known = new Map();
    this.views = this.tensors.map((tensor, number) => new View(tensor, this.overhang(tensor, number)));
  }

  id(program) {
    const [x, y] = this.grid;
    return [program % x, Math.floor(program / x) % y, Math.floor(program / (x * y))];
  }

  // how far lanes reach beyond a tensor: above, below, left of and right of it
  overhang(tensor, number) {
    const beyond = [0, 0, 0, 0], seen = new Set();
    for (let event = 0; event < this.column.tensor.length; event++) {
      const { tensor: of, lanes, mask, base } = this.column;
      const key = [lanes[event], mask[event], base[event]].join();
      if (of[event] !== number || lanes[event] < 0 || seen.has(key)) continue;
      seen.add(key);
      const { at, shape, steps } = data.lanes[lanes[event]];
      const way = at ? null : logical(tensor, base[event], shape, steps, this.active(event));
      const offsets = at ? [...array(at)].map((one) => one + base[event]) : ends(base[event], shape, steps);
      const corners = way ? way.ends : offsets.map((offset) => coordinates(tensor, offset));
      for (const corner of corners) {
        const [, row, col] = place(tensor, corner);
        const [rows, cols] = [rowsOf(tensor), tensor.cols];
        [-row, row - rows + 1, -col, col - cols + 1].forEach((by, i) => (beyond[i] = Math.max(beyond[i], by)));
      }
    }
    return beyond;
  }

  active(event) {
    const runs = data.masks[this.column.mask[event]];
    if (!runs) return null;
    const found = new Uint8Array(sum(runs));
    let at = 0;
    runs.forEach((run, i) => (found.fill(i % 2, at, at + run), (at += run)));
    return found;
  }

  // the cells of an access's lanes and their states
  cells(event) {
    const { tensor: of, lanes, mask, base } = this.column;
    if (of[event] < 0 || lanes[event] < 0) return null;
    const key = [of[event], lanes[event], mask[event], base[event]].join();
    if (this.known.size > 2000) this.known.clear();
    if (!this.known.has(key)) this.known.set(key, this.decoded(event));
    return this.known.get(key);
  }

  decoded(event) {
    const tensor = this.tensors[this.column.tensor[event]], view = this.views[this.column.tensor[event]];
    const { shape, steps, at } = data.lanes[this.column.lanes[event]];
    const base = this.column.base[event], active = this.active(event), given = at && array(at);
    const way = given ? null : logical(tensor, base, shape, steps, active);
    const n = product(shape), cells = new Int32Array(n), states = new Uint8Array(n);
    const index = shape.map(() => 0);
    for (let lane = 0; lane < n; lane++) {
      const offset = base + (given ? given[lane] : sum(index.map((i, axis) => i * steps[axis])));
      const real = coordinates(tensor, offset), isInside = inside(tensor, real);
      states[lane] = active && !active[lane] ? MASKED : isInside ? ACTIVE : OUTSIDE;
      const where = way && states[lane] !== ACTIVE ? way.at(index) : real;
      cells[lane] = view.cell(...place(tensor, where));
      for (let axis = shape.length - 1; axis >= 0 && ++index[axis] === shape[axis]; axis--) index[axis] = 0;
    }
    return { cells, states, shape };
  }
}

const rowsOf = (tensor) => (tensor.shape.length > 1 ? tensor.shape.at(-2) : 1);

// the index of an element by its offset; what the smaller strides do not reach goes to the widest dimension
function coordinates(tensor, offset) {
  const index = tensor.shape.map(() => 0);
  if (!index.length) return offset ? [offset] : [];
  const moving = tensor.shape.flatMap((size, i) => (size > 1 && tensor.strides[i] ? [i] : []));
  moving.sort((a, b) => tensor.strides[b] - tensor.strides[a]);
  let rest = offset;
  for (const i of moving.length ? moving : [index.length - 1]) {
    const stride = tensor.strides[i] || 1;
    index[i] = Math.floor(rest / stride);
    rest -= index[i] * stride;
  }
  index.rest = rest;
  return index;
}

const inside = (tensor, index) =>
  !index.rest && index.length === tensor.shape.length && index.every((i, axis) => i >= 0 && i < tensor.shape[axis]);

// batch, row and column of an index; beyond the last batch rows go on
function place(tensor, index) {
  const shape = tensor.shape, n = shape.length;
  if (n < 2) return [0, 0, index[0] ?? 0];
  const batches = product(shape.slice(0, -2));
  let batch = 0;
  for (let i = 0; i < n - 2; i++) batch = batch * shape[i] + index[i];
  const kept = Math.min(Math.max(batch, 0), batches - 1);
  return [kept, index[n - 2] + (batch - kept) * shape[n - 2], index[n - 1]];
}

function ends(base, shape, steps) {
  const low = sum(shape.map((size, i) => Math.min(0, (size - 1) * steps[i])));
  const high = sum(shape.map((size, i) => Math.max(0, (size - 1) * steps[i])));
  return [base + low, base + high];
}

// where lanes lie as their block's rows and columns go on past a tensor's edge; null where they follow memory
function logical(tensor, base, shape, steps, active) {
  const first = coordinates(tensor, base);
  if (first.rest || !first.length) return null;
  const along = steps.map((step) => {
    const all = tensor.strides.map((stride, i) => [stride, i]);
    const fits = all.filter(([stride, i]) => stride && tensor.shape[i] > 1 && step % stride === 0);
    return step ? fits.sort((a, b) => b[0] - a[0])[0] : [1, -1];
  });
  if (along.includes(undefined)) return null;
  const at = (index) => {
    const found = [...first];
    index.forEach((i, axis) => along[axis][1] >= 0 && (found[along[axis][1]] += (i * steps[axis]) / along[axis][0]));
    return found;
  };
  const n = product(shape), every = Math.max(1, Math.floor(n / 257));
  for (let lane = 0; lane < n; lane += every) {
    if (active && !active[lane]) continue;
    const index = split(lane, shape);
    const real = coordinates(tensor, base + sum(index.map((i, axis) => i * steps[axis])));
    if (inside(tensor, real) && at(index).some((i, axis) => i !== real[axis])) return null;
  }
  return { at, ends: [at(shape.map(() => 0)), at(shape.map((size) => size - 1))] };
}

// the index of a number in a shape, the last axis fastest; what is too much goes to the first
function split(number, shape) {
  const found = [];
  for (const size of shape.slice(1).reverse()) found.unshift(number % size), (number = Math.floor(number / size));
  return [number, ...found];
}

// a tensor as cells: a matrix for each batch, one below the other, or a vector in rows; with room for what lies outside
class View {
  constructor(tensor, beyond) {
    this.tensor = tensor;
    const [rows, cols] = [rowsOf(tensor), tensor.cols];
    this.isVector = tensor.rows === 1 || cols === 1;
    this.n = tensor.rows * cols;
    const limited = beyond.map((by, i) => Math.min(by, Math.max(32, i < 2 ? rows : cols)));
    if (this.isVector) this.asVector(tensor.drawn[0] * tensor.drawn[1], limited, cols === 1);
    else this.asMatrix(rows, cols, limited);
    this.element = new Int32Array(this.width * this.height).fill(-1); // of each cell
    for (let i = 0; i < tensor.drawn[0] * tensor.drawn[1]; i++) this.element[this.cellOfDrawn(i)] = i;
  }

  asVector(n, beyond, isColumn) {
    this.few = n / this.n;
    const [before, after] = (isColumn ? beyond.slice(0, 2) : beyond.slice(2)).map((by) => Math.ceil(by * this.few));
    const isOneRow = before + n + after <= 64;
    const wide = 2 ** Math.ceil(Math.log2(Math.sqrt(2 * n)));
    this.width = isOneRow ? before + n + after : wide;
    this.skip = isOneRow ? before : Math.ceil(before / wide) * wide;
    this.height = Math.ceil((this.skip + n + after) / this.width);
    this.cellOfDrawn = (i) => this.skip + i;
  }

  asMatrix(rows, cols, beyond) {
    const { drawn, rows: all } = this.tensor;
    this.fewRows = drawn[0] / all;
    this.fewCols = drawn[1] / cols;
    this.batches = all / rows;
    const isThin = drawn[0] < all;
    const rowsBeyond = isThin && this.batches > 1 ? 0 : this.fewRows;
    const [above, below] = beyond.slice(0, 2).map((by) => Math.ceil(by * rowsBeyond));
    [this.left, this.right] = beyond.slice(2).map((by) => Math.ceil(by * this.fewCols));
    this.above = above;
    this.tall = above + Math.ceil(rows * this.fewRows) + below; // of a batch
    this.width = this.left + drawn[1] + this.right;
    this.height = isThin && this.batches > 1 ? drawn[0] : this.batches * this.tall;
    const own = isThin ? drawn[0] : rows;
    this.cellOfDrawn = (i) => {
      const row = Math.floor(i / drawn[1]);
      return (Math.floor(row / own) * this.tall + above + (row % own)) * this.width + this.left + (i % drawn[1]);
    };
  }

  cell(batch, row, col) {
    if (this.isVector) {
      const at = this.skip + Math.floor(((batch * rowsOf(this.tensor) + row) * this.tensor.cols + col) * this.few);
      return at >= 0 && at < this.width * this.height ? at : -1;
    }
    const x = this.left + Math.floor(col * this.fewCols);
    const within = this.above + Math.floor(row * this.fewRows);
    const isThin = this.height !== this.batches * this.tall;
    if (x < 0 || x >= this.width || within < 0 || (!isThin && within >= this.tall)) return -1;
    const y = isThin ? Math.floor((batch * rowsOf(this.tensor) + row) * this.fewRows) : batch * this.tall + within;
    return y >= 0 && y < this.height ? y * this.width + x : -1;
  }

  // the index of a cell's element; outside the tensor, of what would be there
  index(cell) {
    const { shape, drawn, rows, cols } = this.tensor, drawnAt = this.element[cell];
    if (!shape.length) return [];
    let row, col;
    if (drawnAt >= 0) {
      row = Math.floor((Math.floor(drawnAt / drawn[1]) * rows) / drawn[0]);
      col = Math.floor(((drawnAt % drawn[1]) * cols) / drawn[1]);
    } else if (this.isVector) {
      const i = Math.floor((cell - this.skip) / this.few);
      [row, col] = cols === 1 ? [i, 0] : [0, i];
    } else {
      const y = Math.floor(cell / this.width), batch = Math.floor(y / this.tall);
      row = batch * rowsOf(this.tensor) + Math.floor(((y % this.tall) - this.above) / this.fewRows);
      col = Math.floor(((cell % this.width) - this.left) / this.fewCols);
      if (batch * rowsOf(this.tensor) > row || row >= (batch + 1) * rowsOf(this.tensor)) {
        const first = split(batch * rowsOf(this.tensor), shape.slice(0, -1));
        return [...first.slice(0, -1), row - batch * rowsOf(this.tensor), col];
      }
    }
    return shape.length === 1 ? [col] : [...split(row, shape.slice(0, -1)), col];
  }
}
