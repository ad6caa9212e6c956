// The page of questions without one mesh: a map of parts, or rows over time, step by step.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const el = (id) => document.getElementById(id);
  const esc = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const timed = "rows" in data, nSteps = data.steps.length, MOST = 400; // lines in the list
  const capital = data.noun[0].toUpperCase() + data.noun.slice(1);
  const UNITS = [[7200, 3600, "h"], [120, 60, "min"], [1, 1, "s"], [1e-3, 1e-3, "ms"], [1e-6, 1e-6, "µs"], [0, 1e-9, "ns"]];
  const amount = (s) => {
    if (data.unit) return `${+s.toPrecision(4)}`;
    const [, scale, unit] = UNITS.find(([from]) => Math.abs(s) >= from * 0.999999) || UNITS[5];
    return s ? `${+(s / scale).toPrecision(4)} ${unit}` : "0";
  };
  let step = 0, timer = 0, chosen = -1, query = "", nodeKinds = [], linkKinds = [];
  const picture = el("picture"), searched = el("search");

  // ---- the frame ----
  document.body.classList.add("scene");
  el("title").textContent = data.title;
  el("subtitle").textContent = data.subtitle;
  el("figures").innerHTML = data.figures.map(([name, value, chip]) =>
    `<dt>${esc(name)}</dt><dd>${chip ? `<span class="chip ${esc(value)}">${esc(value)}</span>` : esc(value)}</dd>`).join("");
  const present = new Set(timed ? data.bars.flatMap((bars) => bars.filter((_, k) => k % 3 === 0)) : [
    ...data.nodes.map((node) => node[5]), ...data.links.map((link) => link[2]),
    ...data.steps.flatMap(({ nodes, links }) => [...Object.values(nodes || {}), ...Object.values(links || {})])]);
  el("legend").querySelector("ul").innerHTML = data.legend.filter((look, kind) => present.has(kind) && !look[4]).map(([name, colour]) =>
    `<li><i class="swatch" style="--c:${colour}"></i>${esc(name)}</li>`).join("");
  el("note").textContent = data.note || "";
  el("stage").setAttribute("aria-label", `The chosen ${data.noun}`);
  el("slider").max = nSteps - 1;
  el("slider").disabled = nSteps < 2;
  document.body.classList.toggle("one-step", nSteps < 2);

  // ---- a map: boxes, and lines between them ----
  let view = timed ? [0, data.span_s, 0, data.rows.length] : [...data.bounds];
  const whole = [...view];
  const middle = (k) => [data.nodes[k][0] + data.nodes[k][2] / 2, data.nodes[k][1] + data.nodes[k][3] / 2];
  const ink = (c) => ([1, 3, 5].reduce((sum, at, k) => sum + [0.2126, 0.7152, 0.0722][k] * (parseInt(c.slice(at, at + 2), 16) / 255) ** 2.2, 0) > 0.36 ? "#17202e" : "#fff");
  function buildMap() {
    picture.innerHTML = '<g id="ways"></g><g id="parts"></g>';
    el("parts").innerHTML = data.nodes.map(([x, y, w, h, text], k) => {
      const size = Math.min(0.62 * h, (1.6 * w) / Math.max(1, text.length));
      return `<g class="node" data-k="${k}" tabindex="0" role="button"><rect x="${x}" y="${y}" width="${w}" height="${h}" rx="${0.12 * Math.min(w, h)}"/>` +
        `<text text-anchor="middle" font-size="${size.toFixed(3)}" x="${x + w / 2}" y="${y + h / 2}">${esc(text)}</text></g>`;
    }).join("");
    el("ways").innerHTML = data.links.map(([a, b, , width], k) => {
      const [p, q] = [middle(a), middle(b)], bend = 0.12;
      const d = `M${p.map((v) => v.toFixed(2)).join(" ")}Q${((p[0] + q[0]) / 2 - bend * (q[1] - p[1])).toFixed(2)} ${((p[1] + q[1]) / 2 + bend * (q[0] - p[0])).toFixed(2)} ${q.map((v) => v.toFixed(2)).join(" ")}`;
      return `<g class="link" data-k="${k}"><path class="seen" style="stroke-width:${width}" d="${d}"/><path class="hit" style="stroke-width:${Math.max(0.14, width)}" d="${d}"/></g>`;
    }).join("");
  }
  function drawMap() {
    nodeKinds = data.nodes.map((node) => node[5]);
    linkKinds = data.links.map((link) => link[2]);
    let fresh = {};
    for (let k = 0; k <= step; k++) {
      fresh = data.steps[k];
      for (const [node, kind] of Object.entries(fresh.nodes || {})) nodeKinds[node] = kind;
      for (const [link, kind] of Object.entries(fresh.links || {})) linkKinds[link] = kind;
    }
    const beside = new Set(chosen < 0 ? [] : [chosen]);
    [...el("ways").children].forEach((way, k) => {
      const kind = linkKinds[k], on = chosen >= 0 && (data.links[k][0] === chosen || data.links[k][1] === chosen);
      const quiet = kind >= 0 && data.legend[kind][2] === "quiet" && !on; // of a part that is looked at
      way.style.display = kind < 0 || quiet ? "none" : "";
      if (kind < 0 || quiet) return;
      way.style.setProperty("--c", data.legend[kind][1]);
      way.classList.toggle("fresh", k in (fresh.links || {}));
      way.classList.toggle("on", on);
      if (on) data.links[k].slice(0, 2).forEach((end) => beside.add(end));
    });
    [...el("parts").children].forEach((part, k) => {
      const colour = data.legend[nodeKinds[k]][1];
      part.style.setProperty("--c", colour);
      part.style.setProperty("--on", ink(colour));
      part.classList.toggle("fresh", step > 0 && k in (fresh.nodes || {}));
      part.classList.toggle("on", beside.has(k));
      part.classList.toggle("followed", k === chosen);
      part.setAttribute("aria-label", `${data.nodes[k][6] || data.nodes[k][4]}, ${data.legend[nodeKinds[k]][0]}`);
    });
    picture.classList.toggle("chosen", chosen >= 0);
    picture.setAttribute("viewBox", view.join(" "));
  }

  // ---- rows over time ----
  const LEFT = 16 + 6.5 * Math.max(4, ...(data.rows || []).map((row) => row.length)), BOTTOM = 26, TOP = 8, RIGHT = 12;
  let shape = null; // what turns time and row into pixels
  function drawTime() {
    const W = Math.max(200, picture.clientWidth - 24), H = Math.max(120, picture.clientHeight - 8), [t0, t1, r0, r1] = view;
    const x = (t) => LEFT + ((t - t0) / (t1 - t0)) * (W - LEFT - RIGHT), y = (r) => TOP + ((r - r0) / (r1 - r0)) * (H - TOP - BOTTOM);
    shape = { W, H, x, y };
    const paths = data.legend.map(() => ""), high = y(1) - y(0), unit = data.span_s / 1e6;
    for (let r = Math.max(0, Math.floor(r0)); r < Math.min(data.rows.length, Math.ceil(r1)); r++) {
      const bars = data.bars[r];
      for (let k = 0; k < bars.length; k += 3) {
        const from = bars[k + 1] * unit, to = from + bars[k + 2] * unit;
        if (to < t0 || from > t1) continue;
        const lane = data.legend[bars[k]][2], a = Math.max(LEFT, x(from)), b = Math.min(W - RIGHT, Math.max(x(to), a + 0.6));
        const top = y(r) + high * (lane === 1 ? 0.5 : 0.08), tall = high * (lane === 2 ? 0.84 : 0.42);
        paths[bars[k]] += `M${a.toFixed(1)} ${top.toFixed(1)}h${(b - a).toFixed(1)}v${tall.toFixed(1)}h${(a - b).toFixed(1)}z`;
      }
    }
    let text = "";
    const every = Math.max(1, Math.ceil(14 / high));
    for (let r = Math.ceil(r0 / every) * every; r < Math.min(r1, data.rows.length); r += every) {
      text += `<text class="name" text-anchor="end" x="${LEFT - 8}" y="${y(r + 0.5).toFixed(1)}">${esc(data.rows[r])}</text>`;
    }
    // Ticks at 1, 2 or 5 of the unit of what is seen, 80 pixels apart or more.
    const [, scale] = data.unit ? [0, 1] : UNITS.find(([from]) => t1 - t0 >= from) || UNITS[5];
    const least = ((t1 - t0) * 80) / (W - LEFT) / scale, power = 10 ** Math.floor(Math.log10(least));
    const tick = scale * power * [1, 2, 5, 10].find((digit) => digit * power >= least);
    for (let k = Math.ceil(t0 / tick); k * tick <= t1; k++) {
      const place = x(k * tick), anchor = place < W - RIGHT - 30 ? "middle" : "end";
      text += `<text class="name tick" text-anchor="${anchor}" x="${place.toFixed(1)}" y="${H - 8}">${amount(k * tick)}</text>`;
    }
    const line = (t, name, title) => t >= t0 && t <= t1 ?
      `<path class="${name}" d="M${x(t).toFixed(1)} ${TOP}V${H - BOTTOM}"/>${title ? `<text class="name" text-anchor="end" x="${(x(t) - 4).toFixed(1)}" y="${TOP + 8}">${title}</text>` : ""}` : "";
    const band = chosen >= 0 ? `<rect class="band" x="0" y="${y(chosen).toFixed(1)}" width="${W}" height="${Math.max(2, high).toFixed(1)}"/>` : "";
    picture.setAttribute("viewBox", `0 0 ${W} ${H}`);
    picture.innerHTML = band + paths.map((d, k) => `<path class="bars" style="--c:${data.legend[k][1]}" d="${d}"/>`).join("") +
      (data.bound_s === null ? "" : line(data.bound_s, "bound", "lower bound")) + line(data.steps[step].at, "now", "") + text;
  }
  const barsAt = (r, t) => {
    const found = [], unit = data.span_s / 1e6, bars = data.bars[r] || [];
    for (let k = 0; k < bars.length; k += 3) if (bars[k + 1] * unit <= t && t <= (bars[k + 1] + bars[k + 2]) * unit) found.push(k);
    return found;
  };
  const barText = (r, k) => {
    const unit = data.span_s / 1e6, [kind, from, long] = data.bars[r].slice(k, k + 3);
    return [data.legend[kind][0], amount(from * unit), amount(long * unit)];
  };

  // ---- what is said, and the list ----
  function lines() { // [cells, where a click leads]
    if (timed && chosen >= 0) {
      const n = data.bars[chosen].length / 3;
      return { title: `${data.row_noun} ${data.rows[chosen]}`, heads: ["what", "from", "lasts"],
        rows: Array.from({ length: n }, (_, k) => [barText(chosen, 3 * k), { at: 3 * k }]) };
    }
    const now = data.steps[step];
    if (now.states) {
      const rows = [];
      now.states.forEach((state, k) => {
        const pairs = data.circuits[k][state];
        for (let at = 0; at < pairs.length; at += 2) rows.push([[`${pairs[at]} → ${pairs[at + 1]}`], { row: data.row_of[pairs[at]] }]);
      });
      return { title: "Circuits at this time", heads: [data.row_noun + "s"], rows };
    }
    return { title: now.title || data.list.title, heads: data.list.heads, rows: now.rows || data.list.rows };
  }
  function fits(cell, word) { // a number is found as a whole, and not in amounts; other words as a part
    if (!/^\d+$/.test(word)) return cell.includes(word);
    return cell === word || (!/^[\d.,]+ \S+$/.test(cell) && (cell.match(/\d+(\.\d+)?/g) ?? []).includes(word));
  }
  function list() {
    const { title, heads, rows } = lines(), word = query.trim().toLowerCase();
    const found = rows.map((row, k) => [row, k]).filter(([row]) => !word || row[0].some((cell) => fits(String(cell).toLowerCase(), word)));
    el("list-title").textContent = title;
    el("release").hidden = chosen < 0;
    el("columns").innerHTML = `<tr>${heads.map((head) => `<th>${esc(head)}</th>`).join("")}</tr>`;
    el("rows").innerHTML = found.slice(0, MOST).map(([[cells, to], k]) =>
      `<tr data-k="${k}"${to.step === step ? ' class="on" aria-current="true"' : ""}><td><button type="button">${esc(cells[0])}</button></td>${cells.slice(1).map((cell) => `<td>${esc(cell)}</td>`).join("")}</tr>`).join("") +
      (found.length > MOST ? `<tr><td>and ${found.length - MOST} more: search</td></tr>` : "");
    const current = el("rows").querySelector("tr.on"), frame = el("scroll");
    if (current) frame.scrollTop = current.offsetTop - frame.clientHeight / 2;
  }
  const draw = () => (timed ? drawTime() : drawMap());
  function goTo(wanted) {
    step = Math.min(nSteps - 1, Math.max(0, wanted));
    el("slider").value = step;
    el("slider").setAttribute("aria-valuetext", `${data.noun} ${step} of 0 to ${nSteps - 1}`);
    const now = data.steps[step], at = timed ? `<span>at <b>${amount(now.at)}</b></span>` : "";
    el("now").innerHTML = `<span class="slot">${esc(capital)} ${step} of 0 to ${nSteps - 1}</span>${at}<span>${esc(now.say)}</span>`;
    draw();
    list();
    el("tip").hidden = true;
  }
  function choose(k) {
    chosen = chosen === k ? -1 : k;
    draw();
    list();
  }
  function play(on) {
    if (on && nSteps < 2) return;
    clearTimeout(timer);
    timer = 0;
    el("play").setAttribute("aria-pressed", String(on));
    el("play").setAttribute("aria-label", on ? "Pause" : "Play");
    el("now").setAttribute("aria-live", on ? "off" : "polite");
    const next = () => {
      timer = setTimeout(next, 1000 / Number(el("speed").value));
      goTo((step + 1) % nSteps);
    };
    if (on) timer = setTimeout(next, 1000 / Number(el("speed").value));
  }
  const pause = (wanted) => { play(false); goTo(wanted); };
  function find() { // by number or name; what is found is in sight
    const word = query.trim().toLowerCase().replace(/^(rank|port|chip|server|job|resource) */, "");
    if (!word) return;
    let k = -1;
    if (timed) k = /^\d+$/.test(word) ? (data.row_of[Number(word)] ?? -1) : data.rows.findIndex((row) => row.toLowerCase().includes(word));
    else {
      const named = (fits) => data.nodes.findIndex((node) => fits(...[node[4], node[6]].map((text) => String(text ?? "").toLowerCase())));
      k = named((_, name) => name === query.trim().toLowerCase());
      if (k < 0) k = named((text) => text === word); // what is written in the picture
      if (k < 0) k = named((_, name) => name.endsWith(` ${word}`));
    }
    if (k < 0) return;
    chosen = -1;
    if (timed && (k < view[2] || k + 1 > view[3])) {
      const high = view[3] - view[2];
      view[2] = Math.max(0, Math.min(data.rows.length - high, k - high / 2));
      view[3] = view[2] + high;
    }
    query = searched.value = "";
    choose(k);
  }

  // ---- pointer ----
  const point = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
  const timeAt = (p) => [view[0] + ((p.x - LEFT) / (shape.W - LEFT - RIGHT)) * (view[1] - view[0]), Math.floor(view[2] + ((p.y - TOP) / (shape.H - TOP - BOTTOM)) * (view[3] - view[2]))];
  function tell(event) {
    let text = "";
    if (timed) {
      const [t, r] = timeAt(point(event));
      if (r >= 0 && r < data.rows.length && t >= view[0]) {
        text = `<h3>${esc(data.row_noun)} ${esc(data.rows[r])}</h3>` + (barsAt(r, t).map((k) => barText(r, k)).map(([what, from, long]) => `<p>${esc(what)}: from ${from}, lasts ${long}</p>`).join("") || '<p class="quiet">nothing</p>');
      }
    } else {
      const node = event.target.closest?.(".node"), link = event.target.closest?.(".link");
      if (node) text = `<h3>${esc(data.nodes[node.dataset.k][6] || data.nodes[node.dataset.k][4])}</h3><p>${esc(data.legend[nodeKinds[node.dataset.k]][0])}</p>`;
      else if (link) text = `<h3>${esc(data.links[link.dataset.k][4])}</h3><p>${esc(data.legend[linkKinds[link.dataset.k]][0])}</p>`;
    }
    const tip = el("tip");
    tip.hidden = !text;
    if (!text) return;
    tip.innerHTML = text;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 16, innerWidth - width - 8))}px`;
    tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18}px`;
  }
  let drag = null;
  picture.addEventListener("pointermove", (event) => {
    if (!drag) return tell(event);
    drag.far ||= Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > 4;
    const box = picture.getBoundingClientRect(), dx = (event.clientX - drag.x) / box.width, dy = (event.clientY - drag.y) / box.height;
    const before = drag.view;
    if (timed) {
      const wide = before[1] - before[0], high = before[3] - before[2];
      const left = Math.max(0, Math.min(whole[1] - wide, before[0] - dx * wide)), top = Math.max(0, Math.min(whole[3] - high, before[2] - dy * high));
      view = [left, left + wide, top, top + high];
    } else view = [before[0] - dx * before[2], before[1] - dy * before[3], before[2], before[3]];
    draw();
  });
  picture.addEventListener("pointerdown", (event) => (drag = { x: event.clientX, y: event.clientY, view: [...view], far: false }));
  let moved = false;
  addEventListener("pointerup", () => { moved = Boolean(drag?.far); drag = null; });
  picture.addEventListener("pointerleave", () => (el("tip").hidden = true));
  picture.addEventListener("click", (event) => {
    if (moved) return;
    const node = event.target.closest(".node");
    if (node) return choose(Number(node.dataset.k));
    if (!timed) return;
    const [, r] = timeAt(point(event));
    if (r >= 0 && r < data.rows.length) choose(r);
  });
  function zoom(factor) {
    if (!factor) view = [...whole];
    else if (timed) {
      for (const [a, b] of [[0, 1], [2, 3]]) {
        const half = (Math.min(whole[b], (view[b] - view[a]) * factor)) / 2, at = Math.max(half, Math.min(whole[b] - half, (view[a] + view[b]) / 2));
        view[a] = at - half;
        view[b] = at + half;
      }
    } else {
      const f = Math.min(1 / (view[2] / whole[2]), factor);
      view = [view[0] + (view[2] * (1 - f)) / 2, view[1] + (view[3] * (1 - f)) / 2, view[2] * f, view[3] * f];
      if (view[2] >= whole[2] * 0.999) view = [...whole];
    }
    draw();
  }
  picture.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.15 : 0.87);
  }, { passive: false });
  el("zoom").addEventListener("click", (event) => event.target.dataset.zoom && zoom(Number(event.target.dataset.zoom)));

  // ---- controls ----
  el("previous").addEventListener("click", () => pause(step - 1));
  el("next").addEventListener("click", () => pause(step + 1));
  el("play").addEventListener("click", () => play(!timer));
  el("speed").addEventListener("change", () => timer && play(true));
  el("slider").addEventListener("input", () => pause(Number(el("slider").value)));
  el("release").addEventListener("click", () => choose(chosen));
  searched.addEventListener("input", () => { query = searched.value; list(); });
  el("rows").addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-k]");
    if (!row) return;
    const to = lines().rows[row.dataset.k][1];
    if (to.step !== undefined) pause(to.step);
    else if (to.node !== undefined) choose(to.node);
    else if (to.row !== undefined) choose(to.row);
  });
  addEventListener("keydown", (event) => {
    const node = event.target.closest?.(".node");
    if (event.target === searched) {
      if (event.key === "Enter") find();
      else if (event.key === "Escape") { query = searched.value = ""; searched.blur(); list(); }
      return;
    }
    if (node && (event.key === "Enter" || event.key === " ")) choose(Number(node.dataset.k));
    else if (event.key === "Escape") chosen >= 0 && choose(chosen);
    else if (event.key === "/") searched.focus();
    else if (event.target.closest("select, input, button") && event.key === " ") return;
    else if (event.target.closest("select, input[type=range]")) return;
    else if (event.key === "ArrowLeft") pause(step - 1);
    else if (event.key === "ArrowRight") pause(step + 1);
    else if (event.key === "Home") pause(0);
    else if (event.key === "End") pause(nSteps - 1);
    else if (event.key === " ") play(!timer);
    else return;
    event.preventDefault();
  });
  if (!timed) buildMap();
  addEventListener("resize", draw);
  goTo(0);
})();
