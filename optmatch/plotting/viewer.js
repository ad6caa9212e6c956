// The page: draws the slot, answers the pointer and the keys.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const el = (id) => document.getElementById(id);
  const esc = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const count = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
  const { nSlots, nCells, BAR, CROSS, FREE, states, at, axis, middle, marks, enters, leaves, links, held, toggled, stroke, follow, circuitsOf } =
    readSchedule(data);
  const label = (port) => data.labels[port] ?? String(port);
  const arrow = data.bidirectional ? "↔" : "→", STATE = { [BAR]: "bar", [CROSS]: "cross", [FREE]: "free" };

  // ---- the page ----
  let slot = 0, circuits = [], followed = -1, listed = -1, pinned = -1, timer = 0;
  const through = new Map(); // cell -> circuits
  el("title").textContent = data.title;
  el("subtitle").textContent = data.subtitle;
  el("figures").innerHTML = data.figures.map(([name, value, chip]) =>
    `<dt>${esc(name)}</dt><dd>${chip ? `<span class="chip ${esc(value)}">${esc(value)}</span>` : esc(value)}</dd>`).join("");
  el("note").textContent = nCells ? `Loss at ${data.loss_db} dB per cell${data.loss_note}, coupling not counted.` : "";
  document.body.classList.toggle("without-cells", !nCells);
  const capital = data.noun[0].toUpperCase() + data.noun.slice(1);
  el("slider").max = nSlots - 1;
  el("slider").disabled = nSlots < 2;
  document.body.classList.toggle("one-step", nSlots < 2);
  el("faults").setAttribute("d", Object.keys(data.faults).map((cell) => stroke(middle[cell], middle[cell])).join(""));

  const [left, lower, right, upper] = data.bounds, whole = [left - 0.3, -upper - 0.3, right - left + 0.6, upper - lower + 0.6];
  let view = [...whole], waiting = 0;
  function show() {
    el("picture").setAttribute("viewBox", view.join(" "));
    const pixels = Math.min(el("picture").clientWidth / view[2], el("picture").clientHeight / view[3]);
    el("ports").classList.toggle("unnamed", pixels * data.radius < 6); // too small to read
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(frame);
  }

  const size = data.radius * 1.05;
  el("ports").innerHTML = marks.map((mark, k) => {
    const aside = Math.abs(mark.out[0]) > 0.3, reach = data.radius + (aside ? 0.12 : 0.14 + 0.4 * size);
    const anchor = aside ? (mark.out[0] > 0 ? "start" : "end") : "middle";
    const name = mark.name === String(mark.port) ? "" :
      `<text class="name" text-anchor="${anchor}" font-size="${size * 0.8}" x="${mark.at[0] + reach * mark.out[0]}" y="${mark.at[1] + reach * mark.out[1]}">${esc(mark.name)}</text>`;
    return `<g class="port" data-mark="${k}" tabindex="0" role="button">` +
      `<circle cx="${mark.at[0]}" cy="${mark.at[1]}" r="${data.radius}"/>` +
      `<text text-anchor="middle" font-size="${mark.port > 99 ? size * 0.85 : size}" x="${mark.at[0]}" y="${mark.at[1]}">${mark.port}</text>${name}</g>`;
  }).join("");
  const portNodes = [...el("ports").children];

  const most = Math.max(1, ...toggled.map((cells) => cells.length));
  el("chart").setAttribute("viewBox", `0 0 ${Math.max(1, nSlots - 1)} 1`);
  el("chart").setAttribute("aria-label", "Cells toggled before each " + data.noun);
  const barWidth = 0.72 * Math.min(1, nSlots / 30);
  el("chart").innerHTML = data.matchings.map((_, k) => {
    const height = Math.max(0.05, (toggled[k] || []).length / most);
    return `<rect x="${k - barWidth / 2}" width="${barWidth}" y="${1 - height}" height="${height}"><title>${data.noun} ${k}: ${count((toggled[k] || []).length, "cell")} toggled</title></rect>`;
  }).join("");
  const bars = [...el("chart").children].filter((node) => node.tagName === "rect");

  const db = (cells) => `${(cells * data.loss_db).toFixed(1)} dB`;
  const luminance = (c) => [1, 3, 5].map((k) => (parseInt(c.slice(k, k + 2), 16) / 255) ** 2.2)
    .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
  const matchOf = ({ port, role }) => circuits.find((c) =>
    (c.source === port && role !== "out") || (c.destination === port && role !== "in"));

  // ---- cells: stamps on a canvas, one for each direction, state and mark, as paths of thousands of cells are slow ----
  const beams = el("light").getContext("2d"), canvas = el("cells"), ink = canvas.getContext("2d"), wires = el("wires"), rails = document.createElement("canvas"), shapes = new Map();
  const shapeOf = middle.map((at0, cell) => {
    const key = String(at.slice(4 * cell, 4 * cell + 2).map((p) => p.map((v, i) => (v - at0[i]).toFixed(3))));
    return shapes.set(key, shapes.get(key) ?? shapes.size).get(key);
  });
  let scale = 1, origin = [0, 0], stamps = [], card = "";
  const colour = (name) => getComputedStyle(canvas).getPropertyValue(name);
  const onScreen = (pen) => pen.setTransform(scale, 0, 0, scale, ...origin);
  function frame() { // after a change of size, view or colours
    const box = canvas.getBoundingClientRect(), m = el("picture").getScreenCTM(), dense = devicePixelRatio;
    if (!m || box.width * dense < 1 || box.height * dense < 1) return; // a frame that is not shown yet
    for (const each of [canvas, wires, rails, beams.canvas]) [each.width, each.height] = [box.width * dense, box.height * dense].map(Math.round);
    [scale, origin, stamps, card] = [m.a * dense, [(m.e - box.left) * dense, (m.f - box.top) * dense], [], colour("--card")];
    const pen = wires.getContext("2d");
    onScreen(pen);
    [pen.lineWidth, pen.strokeStyle] = [0.026, colour("--rail")];
    for (const link of links) pen.stroke(link);
    const below = rails.getContext("2d"); // all cells without light; those with light lie on them
    onScreen(below);
    [below.lineWidth, below.lineCap, below.strokeStyle] = [0.026, "round", colour("--rail")];
    for (let t = 0; t < 4 * nCells; t += 4) for (const k of [t, t + 1]) below.stroke(new Path2D(`M${at[k]}L${at[k + 2]}`));
    [beams.lineCap, beams.lineJoin] = ["round", "round"];
    drawCells();
    drawLight();
  }
  function stamp(cell, state, fresh) {
    const t = 4 * cell, swap = state === CROSS ? 1 : 0, [x, y] = middle[cell];
    const mid = (a, b) => [0, 1].map((i) => 0.6 * (at[a][i] + at[a + 1][i]) - 0.1 * (at[b][i] + at[b + 1][i]));
    const half = Math.ceil(scale * (0.3 + Math.max(...[0, 1, 2, 3].map((k) => Math.hypot(at[t + k][0] - x, at[t + k][1] - y)))));
    const canvas = new OffscreenCanvas(2 * half, 2 * half), pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, half - scale * x, half - scale * y);
    pen.lineCap = "round";
    const draw = (width, name, ...lines) => {
      [pen.lineWidth, pen.strokeStyle] = [width, colour(name)];
      for (const [p, q] of lines) pen.stroke(new Path2D(`M${p}L${q}`));
    };
    const body = [mid(t, t + 2), mid(t + 2, t)], ways = [[at[t], at[t + 2 + swap]], [at[t + 1], at[t + 3 - swap]]];
    if (fresh) draw(0.52, "--toggled", body);
    draw(0.4, "--body", body);
    draw(0.042, "--set", ...ways);
    return { tile: canvas.transferToImageBitmap(), half };
  }
  function drawCells() {
    const marked = new Uint8Array(nCells);
    if (el("mark").checked) for (const cell of toggled[slot] || []) marked[cell] = 1;
    if (!card) return; // nothing has a size yet
    ink.clearRect(0, 0, canvas.width, canvas.height);
    if (nCells) ink.drawImage(rails, 0, 0);
    for (let cell = 0; cell < nCells; cell++) {
      if (states[slot][cell] === FREE) continue;
      const state = states[slot][cell], key = 6 * shapeOf[cell] + 2 * state + marked[cell];
      const { tile, half } = (stamps[key] ??= stamp(cell, state, marked[cell])), [x, y] = middle[cell];
      ink.drawImage(tile, Math.round(scale * x + origin[0]) - half, Math.round(scale * y + origin[1]) - half);
    }
    el("toggles").textContent = (toggled[slot] || []).length;
    el("cursor").setAttribute("d", "");
  }
  function drawLight() { // while slots play: a canvas is quicker than paths that live for a moment
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const halo = Number(el("speed").value) <= 2 ? [[0.205, card]] : []; // beyond, nobody follows a crossing
    beams.clearRect(0, 0, beams.canvas.width, beams.canvas.height);
    if (!timer) return;
    onScreen(beams);
    for (const c of circuits) {
      const line = new Path2D(c.path), on = followed < 0 || followed === c.source || followed === c.destination;
      beams.globalAlpha = on ? 1 : 0.16;
      for (const [width, ink] of [...halo, [0.115, dark ? `color-mix(in oklab, ${c.colour} 68%, white)` : c.colour]]) {
        [beams.lineWidth, beams.strokeStyle] = [width, ink];
        beams.setLineDash(c.arrives || ink === card ? [] : [0.02, 0.2]);
        beams.stroke(line);
      }
    }
    beams.resetTransform();
  }
  function drawCircuits() {
    circuits = circuitsOf(slot);
    through.clear();
    for (const c of circuits) for (const cell of new Set(c.cells)) through.set(cell, [...(through.get(cell) || []), c]);
    drawLight();
    el("circuits").innerHTML = timer ? "" : circuits.map((c, k) => {
      return `<g class="circuit${c.arrives ? "" : " lost"}" data-k="${k}" style="--c:${c.colour}">` +
        `<path class="halo hit" d="${c.path}"/><path class="light" pathLength="1" d="${c.path}"/></g>`;
    }).join("");
    el("circuits").classList.toggle("drawing", through.size < 600 && (!timer || Number(el("speed").value) <= 1));
    portNodes.forEach((node, k) => {
      const { port, name } = marks[k], circuit = matchOf(marks[k]), now = circuit ? `${circuit.source} ${circuit.destination} ${circuit.colour}` : "idle";
      if (node.now === now) return; // writing is what costs
      node.now = now;
      node.classList.toggle("busy", Boolean(circuit));
      node.style.setProperty("--c", circuit ? circuit.colour : "var(--idle)");
      node.style.setProperty("--on", circuit && luminance(circuit.colour) > 0.36 ? "#17202e" : "#fff");
      const partner = circuit && (circuit.source === port && marks[k].role !== "out" ? circuit.destination : circuit.source);
      node.setAttribute("aria-label", `port ${port}${name === String(port) ? "" : `, ${name}`}, ${circuit ? `meets port ${partner}` : "idle"}: follow`);
    });
  }
  function say() {
    const longest = Math.max(0, ...circuits.map((c) => c.cells.length));
    const lit = nCells ? states[slot].filter((s) => s !== FREE).length : 0;
    const lost = circuits.filter((c) => !c.arrives).length;
    const said = [`<span class="slot">${nSlots > 1 ? `${capital} ${slot} of 0 to ${nSlots - 1}` : "One matching"}</span>`, `<span><b>${circuits.length}</b> circuit${circuits.length === 1 ? "" : "s"}</span>`];
    if (nCells) said.push(`<span><b>${lit}</b> of ${nCells.toLocaleString("en")} cells lit</span>`, `<span><b>${toggled[slot].length}</b> toggled</span>`,
      `<span>longest <b>${longest}</b> cells, <b>${db(longest)}</b></span>`);
    if (data.names.length) said.splice(1, 0, `<span>${esc(data.names[slot])}</span>`);
    if (lost) said.push(`<span><b>${lost}</b> without light at the end</span>`);
    if (data.durations[slot]) said.push(`<span>holds <b>${data.durations[slot]}</b></span>`);
    el("now").innerHTML = said.join("");
  }
  function list() {
    const carried = data.carried?.[slot], heads = nCells ? ["cells", "loss"] : carried ? ["carries"] : [], fast = timer && Number(el("speed").value) > 5; // nobody reads on
    const row = (first, n, attributes, amount) => `<tr ${attributes}><td>${first}</td>${nCells ? `<td>${n}</td><td>${n === "" ? "" : db(n)}</td>` : amount ? `<td>${esc(amount)}</td>` : carried ? "<td></td>" : ""}</tr>`;
    const dot = (c) => `<i class="dot" style="--c:${c.colour}"></i>`;
    el("release").hidden = followed < 0;
    queueMicrotask(filter);
    if (followed < 0) {
      listed = -1;
      el("list-title").textContent = `Circuits of this ${data.noun}`;
      el("columns").innerHTML = `<tr>${["ports", ...heads].map((h) => `<th>${h}</th>`).join("")}</tr>`;
      el("rows").innerHTML = fast ? "" : circuits.map((c, k) =>
        row(`<button type="button">${dot(c)}${esc(label(c.source))} ${arrow} ${esc(label(c.destination))}</button>`, c.cells.length,
          `data-k="${k}" data-ports="${c.source} ${c.destination}"`, carried?.[c.source])).join("");
      return;
    }
    el("list-title").textContent = `Port ${label(followed)} through all ${data.noun}s`;
    el("columns").innerHTML = `<tr>${[data.noun + ": port", ...heads].map((h) => `<th>${h}</th>`).join("")}</tr>`;
    if (listed !== followed) el("rows").innerHTML = data.matchings.map((matching, k) => {
      const to = matching[followed], from = matching.indexOf(followed);
      const partner = data.bidirectional ? (to < 0 ? "idle" : `${arrow} ${label(to)}`) :
        [to < 0 ? "" : `→ ${label(to)}`, from < 0 ? "" : `← ${label(from)}`].filter(Boolean).join(", ") || "idle";
      const cells = to >= 0 ? follow(k, followed).cells.length : "";
      return row(`<button type="button">${k}: ${esc(partner)}</button>`, cells, `data-slot="${k}" data-ports="${to} ${from}"`, data.carried?.[k]?.[followed]);
    }).join("");
    listed = followed;
    for (const row of el("rows").querySelectorAll(".on")) { row.className = ""; row.ariaCurrent = null; }
    const current = el("rows").children[slot], scroll = el("scroll");
    [current.className, current.ariaCurrent] = ["on", "true"];
    scroll.scrollTop = current.offsetTop - scroll.offsetTop - scroll.clientHeight / 2;
  }
  function emphasise(chosen) { // a circuit of this slot, or -1; a followed port stays in sight
    const on = circuits.map((c, k) => (chosen >= 0 ? k === chosen : followed === c.source || followed === c.destination));
    el("picture").classList.toggle("chosen", chosen >= 0 || followed >= 0);
    [...el("circuits").children].forEach((node, k) => node.classList.toggle("on", on[k]));
    const none = !on.includes(true);
    portNodes.forEach((node, k) => {
      const circuit = none ? -1 : circuits.indexOf(matchOf(marks[k]));
      node.classList.toggle("on", on[circuit] || (chosen < 0 && marks[k].port === followed));
      node.classList.toggle("followed", marks[k].port === followed);
    });
    if (followed < 0) [...el("rows").children].forEach((node, k) => node.classList.toggle("on", k === chosen));
  }
  const searched = el("search");
  function filter() { // the list; Enter follows the port of that number or name
    const word = searched.value.trim().toLowerCase();
    const wanted = word ? portsNamed(word) : null;
    for (const row of el("rows").children) {
      const ports = (row.dataset.ports ?? "").split(" ").map(Number), cells = [...row.children].map((cell) => cell.textContent.trim().toLowerCase());
      row.hidden = Boolean(wanted) && !ports.some((port) => wanted.has(port)) && !cells.includes(word);
    }
  }
  function portsNamed(word) { // a number is the port of this number; a word is a label, or else a part of some
    const bare = word.replace(/^port +/, "");
    const names = new Map();
    for (const { port, name } of marks) names.set(port, [...(names.get(port) ?? []), name.toLowerCase(), label(port).toLowerCase()]);
    const having = (fits) => new Set([...names].filter(([port, own]) => fits(port, own)).map(([port]) => port));
    const exact = having((_, own) => own.includes(bare));
    if (exact.size) return exact;
    if (/^\d+$/.test(bare)) return having((port) => String(port) === bare);
    return having((_, own) => own.some((name) => name.includes(bare)));
  }
  function find() {
    const word = searched.value.trim().toLowerCase().replace(/^port */, "");
    const mark = marks.find((each) => each.name.toLowerCase() === word || label(each.port).toLowerCase() === word) || marks.find((each) => String(each.port) === word);
    if (!mark || !word) return;
    searched.value = "";
    if (followed !== mark.port) followPort(mark.port);
  }
  function goTo(wanted) {
    slot = Math.min(nSlots - 1, Math.max(0, wanted));
    pinned = -1;
    el("slider").value = slot;
    el("slider").setAttribute("aria-valuetext", `${data.noun} ${slot} of 0 to ${nSlots - 1}`);
    drawCells();
    drawCircuits();
    say();
    list();
    emphasise(-1);
    for (const node of el("chart").querySelectorAll(".on")) node.classList.remove("on");
    bars[slot].classList.add("on");
    el("tip").hidden = true;
  }
  function play(on) {
    if (on && nSlots < 2) return;
    const was = Boolean(timer);
    clearTimeout(timer);
    timer = 0;
    el("play").setAttribute("aria-pressed", String(on));
    el("play").setAttribute("aria-label", on ? "Pause" : "Play");
    el("now").setAttribute("aria-live", on ? "off" : "polite");
    const step = () => {
      timer = setTimeout(step, 1000 / Number(el("speed").value));
      goTo((slot + 1) % nSlots);
    };
    if (on) timer = setTimeout(step, 1000 / Number(el("speed").value));
    if (on === was) return;
    drawCircuits();
    list();
    emphasise(-1);
  }
  function followPort(port) {
    followed = followed === port ? -1 : port;
    list();
    drawLight();
    emphasise(-1);
  }

  // ---- pointer: the circuit and the cell under it ----
  const near = new Map();
  middle.forEach(([x, y], cell) => {
    const key = `${Math.floor(x)},${Math.floor(y)}`;
    near.set(key, [...(near.get(key) || []), cell]);
  });
  function cellAt(event) {
    const p = new DOMPoint(event.clientX, event.clientY).matrixTransform(el("picture").getScreenCTM().inverse());
    let best = -1, distance = 0.3;
    for (let i = -1; i <= 1; i++) for (let j = -1; j <= 1; j++) {
      for (const cell of near.get(`${Math.floor(p.x) + i},${Math.floor(p.y) + j}`) || []) {
        const [x, y] = middle[cell], [ux, uy] = axis[4 * cell];
        const along = Math.max(0, Math.abs((p.x - x) * ux + (p.y - y) * uy) - 0.4);
        const d = Math.hypot(along, (p.x - x) * uy - (p.y - y) * ux);
        if (d < distance) [best, distance] = [cell, d];
      }
    }
    return best;
  }
  const portText = (port, map) => {
    const { name } = map.get(port);
    return `port ${esc(label(port))}${name === label(port) || name === String(port) ? "" : ` (${esc(name)})`}`;
  };
  const pair = (c) => `${portText(c.source, enters)} ${arrow} ${portText(c.destination, leaves)}`;
  const cellName = (cell) => data.cell_names.length ? esc(data.cell_names[cell]) : cell;
  function circuitText(c) {
    const names = c.cells.map(cellName);
    const ids = names.length > 30 ? `${names.slice(0, 28).join(" ")} … ${names.at(-1)}` : names.join(" ");
    return `<h3><i class="dot" style="--c:${c.colour}"></i>${pair(c)}</h3>` +
      (nCells ? `<p>${count(c.cells.length, "cell")}, ${db(c.cells.length)} at ${data.loss_db} dB per cell</p><p class="ids">cells ${ids}</p>` : "") +
      (c.arrives ? "" : "<p>the light does not arrive</p>");
  }
  function cellText(cell, brief) {
    const state = STATE[states[slot][cell]], last = slot ? held[slot - 1][cell] : FREE;
    const before = last === FREE ? "not set before" : `before: ${STATE[last]}`;
    const users = (through.get(cell) || []).map((c) => `<p class="quiet"><i class="dot" style="--c:${c.colour}"></i>${pair(c)}</p>`).join("");
    const fault = cell in data.faults ? `<p>${data.faults[cell]}</p>` : "";
    return `<h3>cell ${cellName(cell)}: ${state}</h3>${fault}<p>${before}${toggled[slot].includes(cell) ? ", toggled for this " + data.noun : ""}</p>` +
      (brief ? "" : users || '<p class="quiet">no circuit</p>');
  }
  function point(event) {
    const node = event.target.closest?.(".circuit"), port = event.target.closest?.(".port");
    const mark = port && marks[port.dataset.mark], cell = port ? -1 : cellAt(event);
    const k = node ? Number(node.dataset.k) : port ? circuits.indexOf(matchOf(mark)) : -1;
    if (k !== pinned) emphasise((pinned = k));
    el("cursor").setAttribute("d", cell < 0 ? "" : stroke(
      [0, 1].map((i) => middle[cell][i] - 0.36 * axis[4 * cell][i]), [0, 1].map((i) => middle[cell][i] + 0.36 * axis[4 * cell][i])));
    const idle = port && k < 0 ? `<h3>${portText(mark.port, mark.role === "out" ? leaves : enters)}: idle</h3>` : "";
    const text = idle + (k >= 0 ? circuitText(circuits[k]) : "") + (cell >= 0 ? cellText(cell, k >= 0 && through.get(cell)?.length === 1) : "");
    const tip = el("tip");
    tip.hidden = !text;
    if (!text) return;
    tip.innerHTML = text;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.min(event.clientX + 16, innerWidth - width - 8)}px`;
    tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18}px`;
  }
  const picture = el("picture");
  let drag = null;
  picture.addEventListener("pointermove", (event) => {
    if (!drag) return point(event);
    const scale = picture.getScreenCTM().a;
    view[0] = drag.view[0] - (event.clientX - drag.x) / scale;
    view[1] = drag.view[1] - (event.clientY - drag.y) / scale;
    show();
  });
  picture.addEventListener("pointerleave", () => {
    el("tip").hidden = true;
    el("cursor").setAttribute("d", "");
    emphasise((pinned = -1));
  });
  picture.addEventListener("pointerdown", (event) => {
    if (!event.target.closest(".port") && view[2] < whole[2]) drag = { x: event.clientX, y: event.clientY, view: [...view] };
  });
  addEventListener("pointerup", () => (drag = null));
  function zoom(factor, x = view[0] + view[2] / 2, y = view[1] + view[3] / 2) {
    const to = factor ? Math.max(Math.min(1, 2 / whole[2]), Math.min(1, (view[2] / whole[2]) * factor)) : 1;
    const f = (whole[2] * to) / view[2];
    view = to === 1 ? [...whole] : [x - (x - view[0]) * f, y - (y - view[1]) * f, view[2] * f, view[3] * f];
    show();
  }
  picture.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const p = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
    zoom(event.deltaY > 0 ? 1.15 : 0.87, p.x, p.y);
  }, { passive: false });
  el("zoom").addEventListener("click", (event) => {
    if (event.target.dataset.zoom) zoom(Number(event.target.dataset.zoom));
  });

  // ---- controls ----
  const pause = (wanted) => { play(false); goTo(wanted); };
  el("previous").addEventListener("click", () => pause(slot - 1));
  el("next").addEventListener("click", () => pause(slot + 1));
  el("play").addEventListener("click", () => play(!timer));
  el("speed").addEventListener("change", () => timer && play(true));
  el("slider").addEventListener("input", () => pause(Number(el("slider").value)));
  el("chart").addEventListener("click", (event) => {
    const box = el("chart").getBoundingClientRect();
    pause(Math.round(((event.clientX - box.left) / box.width) * (nSlots - 1)));
  });
  el("mark").addEventListener("change", drawCells);
  searched.addEventListener("input", filter);
  el("release").addEventListener("click", () => followPort(followed));
  const portOf = (event) => event.target.closest(".port");
  el("ports").addEventListener("click", (event) => portOf(event) && followPort(marks[portOf(event).dataset.mark].port));
  const rowOf = (event) => event.target.closest("tr");
  el("rows").addEventListener("click", (event) => rowOf(event)?.dataset.slot && pause(Number(rowOf(event).dataset.slot)));
  for (const kind of ["pointerover", "focusin"]) {
    el("rows").addEventListener(kind, (event) => rowOf(event)?.dataset.k && emphasise(Number(rowOf(event).dataset.k)));
  }
  for (const kind of ["pointerleave", "focusout"]) el("rows").addEventListener(kind, () => emphasise(-1));
  addEventListener("keydown", (event) => {
    const port = portOf(event);
    if (event.target === searched) {
      if (event.key === "Enter") find();
      else if (event.key === "Escape") { searched.value = ""; searched.blur(); filter(); }
      return;
    }
    if (event.key === "/") searched.focus();
    else if (port && (event.key === "Enter" || event.key === " ")) followPort(marks[port.dataset.mark].port);
    else if (event.key === "Escape") followed >= 0 && followPort(followed);
    else if (event.target.closest("select, input, button") && event.key === " ") return;
    else if (event.target.closest("select, input[type=range]")) return;
    else if (event.key === "ArrowLeft") pause(slot - 1);
    else if (event.key === "ArrowRight") pause(slot + 1);
    else if (event.key === "Home") pause(0);
    else if (event.key === "End") pause(nSlots - 1);
    else if (event.key === " ") play(!timer);
    else return;
    event.preventDefault();
  });
  show();
  frame();
  new ResizeObserver(show).observe(picture);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  goTo(0);
})();
