// Where everything is, and where the light goes: the page traces it through the cell states itself.
function readSchedule(data) {
  "use strict";
  const nCells = data.ends.length / 4;
  const BAR = 0, CROSS = 1, FREE = 2;
  const packed = atob(data.states), wide = Math.ceil(nCells / 5); // five cells in a byte, in base 3
  const statesOf = data.matchings.map((_, slot) => {
    const row = new Uint8Array(5 * wide);
    for (let k = 0; k < wide && packed; k++) {
      for (let n = packed.charCodeAt(slot * wide + k), cell = 5 * k; n; n = Math.floor(n / 3)) row[cell++] = n % 3;
    }
    return row.subarray(0, nCells);
  });

  // rounds of a collective over the same circuits share a matching, and its states
  const kept = data.epoch_of_round || [...data.matchings.keys()], nSlots = kept.length;
  const states = kept.map((k) => statesOf[k]);
  data.matchings = kept.map((k) => data.matchings[k]);

  // the geometry of mesh_data, with y downwards
  const at = [], axis = [], middle = []; // of terminals, of terminals, of cells
  for (let cell = 0; cell < nCells; cell++) {
    const [ax, ay, bx, by] = data.ends.slice(4 * cell, 4 * cell + 4);
    const dx = bx - ax, dy = by - ay, size = Math.hypot(dx, dy);
    for (const [x, y, s] of [[ax, ay, 1], [bx, by, -1]]) {
      for (const side of [1, -1]) {
        const px = x + s * data.inset * dx - side * data.offset * dy;
        const py = y + s * data.inset * dy + side * data.offset * dx;
        at.push([px, -py]);
        axis.push([(-s * dx) / size, (s * dy) / size]);
      }
    }
    middle.push([(ax + bx) / 2, -(ay + by) / 2]);
  }
  const marks = data.ports.map(([port, role, terminal, name, x, y, nx, ny]) =>
    ({ port, role, terminal, name, at: [x, -y], out: [nx, -ny] }));
  const enters = new Map(), leaves = new Map();
  for (const mark of marks) {
    if (mark.role !== "out") enters.set(mark.port, mark);
    if (mark.role !== "in") leaves.set(mark.port, mark);
  }
  const xy = (x, y) => `${+x.toFixed(2)} ${+y.toFixed(2)}`;
  const stroke = (p, q) => `M${xy(...p)}L${xy(...q)}`;
  function curve(p, out, q, into) {
    const h = data.handle * Math.hypot(q[0] - p[0], q[1] - p[1]);
    return `C${xy(p[0] + h * out[0], p[1] + h * out[1])} ${xy(q[0] + h * into[0], q[1] + h * into[1])} ${xy(...q)}`;
  }
  const back = ([x, y]) => [-x, -y];

  // ---- light and toggles ----
  const ways = new Map(); // of light between two terminals, through links (1) and cells (-1): they come again in other slots
  function way(p, q, s) {
    const key = s * (4 * nCells * p + q), out = ([x, y]) => [s * x, s * y];
    if (!ways.has(key)) ways.set(key, s < 0 && (p ^ q) === 2 ? `L${xy(...at[q])}` : curve(at[p], out(axis[p]), at[q], out(axis[q])));
    return ways.get(key);
  }
  function follow(slot, source) {
    const destination = data.matchings[slot][source], goal = leaves.get(destination), start = enters.get(source);
    const circuit = { source, destination, cells: [], arrives: true, path: `M${xy(...start.at)}` };
    let place = start.at, heading = back(start.out), entered = start.terminal, left = -1;
    while (entered >= 0 && states[slot][entered >> 2] !== FREE) {
      circuit.path += left < 0 ? curve(place, heading, at[entered], axis[entered]) : way(left, entered, 1);
      left = (entered ^ 2) ^ (states[slot][entered >> 2] === CROSS ? 1 : 0);
      circuit.path += way(entered, left, -1);
      circuit.cells.push(entered >> 2);
      [place, heading, entered] = [at[left], axis[left], data.mate[left]];
    }
    circuit.arrives = nCells === 0 || (left === goal.terminal && circuit.cells.length > 0);
    if (circuit.arrives) circuit.path += curve(place, heading, goal.at, back(goal.out));
    return circuit;
  }
  function circuitsOf(slot) {
    const found = [];
    data.matchings[slot].forEach((destination, source) => {
      if (destination >= 0 && (!data.bidirectional || source < destination)) found.push(follow(slot, source));
    });
    found.forEach((circuit, k) => {
      const number = data.circuit_of_port.length ? data.circuit_of_port[circuit.source] : k;
      circuit.colour = data.colours[number % data.colours.length];
    });
    return found;
  }
  const held = [], toggled = []; // what each cell is in, a free cell keeping its last state; and who changed
  for (let slot = 0; slot < nSlots && nCells; slot++) {
    const now = states[slot].slice(), before = held[slot - 1], changed = [];
    for (let cell = 0; before && cell < nCells; cell++) {
      if (now[cell] === FREE) now[cell] = before[cell];
      else if (before[cell] !== FREE && before[cell] !== now[cell]) changed.push(cell);
    }
    held.push(now);
    toggled.push(changed);
  }

  const links = [];
  data.mate.forEach((mate, t) => {
    if (mate > t) links.push(new Path2D(`M${xy(...at[t])}${curve(at[t], axis[t], at[mate], axis[mate])}`));
  });

  return { nSlots, nCells, BAR, CROSS, FREE, states, at, axis, middle, marks, enters, leaves, links, held, toggled, stroke, follow, circuitsOf };
}
