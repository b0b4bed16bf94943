// ---- Elements

function element(tag, text = "", kind = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = kind;
  return made;
}

function named(made, id) {
  if (id) made.id = id;
  return made;
}

const result = (id, text) => named(element("p", text, "result"), id);
const note = (text, id) => named(element("p", text, "note"), id);

// A table of names with a bar and a number each; `share` is the length of the bar, up to 1.
function bars(rows, caption = "", hasBest = false) {
  const table = element("table", "", "bars");
  if (caption) table.createCaption().textContent = caption.trim();
  rows.forEach(({name, share, said}, index) => {
    const line = table.insertRow(), bar = element("i");
    if (hasBest && !index) line.className = "best";
    const head = element("th", name);
    head.scope = "row";
    bar.style.width = `${(100 * Math.max(share, 0)).toFixed(1)}%`;
    line.append(head);
    line.insertCell().append(bar);
    line.insertCell().textContent = said ?? share.toFixed(3);
  });
  return table;
}

// Words with their labels, coloured by the class: `B-` and `I-` of one class are alike.
function tagged(words, labels, probabilities) {
  const list = element("ul", "", "tags");
  const kindOf = (label) => label.replace(/^[BIESLU]-/, "");
  const kinds = [...new Set(labels.map(kindOf))].filter((kind) => kind && kind !== "O").sort();
  words.forEach((word, w) => {
    if (word === "") return;
    const item = element("li", word), label = labels[w], kind = kinds.indexOf(kindOf(label));
    item.title = label ? `${label} ${probabilities[w].toFixed(3)}` : "not read";
    if (kind >= 0) {
      item.className = "tagged";
      item.style.setProperty("--hue", (210 + kind * 137.5) % 360);
      item.append(element("small", `${label} ${probabilities[w].toFixed(2)}`));
    }
    list.append(item);
  });
  return list;
}

// A text with the first place of a part of it marked; a tokenizer may have changed case and spaces.
function marked(text, part) {
  const escape = (sign) => sign.replace(/[\\^$.*+?()[\]{}|/]/, "\\$&");
  const signs = [...part.replace(/\s/g, "")].map(escape);
  const found = signs.length ? new RegExp(signs.join("\\s*"), "iu").exec(text) : null;
  const paragraph = element("p", found ? text.slice(0, found.index) : text, "text");
  if (found) {
    paragraph.append(element("mark", found[0]), text.slice(found.index + found[0].length));
  }
  return paragraph;
}

function showMap() {
  const {source, written, layers} = shown;
  const chosen = pick(layers, "layer").flatMap((heads) => pick(heads, "head"));
  const weight = (t, s) => chosen.reduce((sum, head) => sum + head[t][s], 0) / chosen.length;
  const rows = written.map((_, t) => source.map((_, s) => weight(t, s)));
  const most = Math.max(...rows.map((row) => Math.max(...row)), 1e-9);
  const table = element("table");
  const head = table.createTHead().insertRow();
  head.append(element("td"));
  const long = source.some((token) => token.trim().length > 2);
  source.forEach((token) => head.append(header(token, "col", long)));
  const body = table.createTBody();
  rows.forEach((row, t) => {
    const line = body.insertRow();
    line.append(header(written[t], "row", false));
    row.forEach((value, s) => {
      const cell = line.insertCell();
      const label = `${legible(written[t])} looked at ${legible(source[s])}: ${value.toFixed(3)}`;
      cell.style.backgroundColor = `rgba(var(--warm), ${(value / most).toFixed(3)})`;
      cell.title = label;
      cell.setAttribute("aria-label", label);
    });
  });
  $("most").textContent = most.toFixed(2);
  $("map").replaceChildren(table);
}

// The maps that a select asks for: one, or all for their mean.
const pick = (maps, id) => $(id).value === "mean" ? maps : [maps[$(id).value - 1]];

const legible = (token) => token === "" ? "end" : token.replaceAll(" ", "\u2423");

function header(token, scope, long) {
  const cell = element("th", legible(token));
  cell.scope = scope;
  if (token === "") cell.classList.add("end");
  if (long || (scope === "col" && token === "")) cell.classList.add("long");
  return cell;
}

// ---- Series of numbers: read from a text, and drawn with their forecast and its band

const CHART_HEIGHT = 240, MARGIN = {top: 8, right: 12, bottom: 24, left: 52};
const LEAST_PAST = 48;  // times before the forecast that a chart shows if there are as many

// The numbers of a text, a list for each time: all of a series, or a line of channels each.
function readSeries(text, isVector) {
  const isMissing = (word) => /^[+-]?(nan|na|null|\?)$/i.test(word);
  const rows = text.split("\n").filter((line) => line.trim()).map((line) =>
    line.trim().split(/[\s,;]+/).filter(Boolean).map((word) => {
      const value = isMissing(word) ? NaN : Number(word);
      if (!isMissing(word) && Number.isNaN(value)) {
        throw new Error(`"${word}" is no number; a missing one is NaN.`);
      }
      return value;
    }));
  const times = isVector || rows.length === 1 ? rows.flat().map((value) => [value]) : rows;
  times.forEach((row, t) => {
    const [wanted, got] = [times[0].length, row.length];
    if (got !== wanted) throw new Error(`Line ${t + 1} has ${got} numbers, the first one ${wanted}.`);
  });
  return times;
}

// A chart for each channel of a series, and the numbers of its forecast.
function forecastCharts(times, isVector, outputs, width) {
  const levels = outputs.levels?.[0] || [], last = levels.length - 1;
  return times[0].flatMap((_, c) => {
    const channel = (row) => isVector ? row : row[c];
    const at = (q) => outputs.quantiles[0].map((row) => channel(row)[q]);
    const middle = outputs.mean[0].map(channel), past = times.map((row) => row[c]);
    const said = times[0].length > 1 ? [`Channel ${c + 1}.`] : [];
    if (last > 0) said.push(`Band from ${levels[0]} to ${levels[last]}.`);
    const [low, high] = last > 0 ? [at(0), at(last)] : [null, null];
    const columns = [["mean", middle], ...levels.map((level, q) => [`${level}`, at(q)])];
    return [chart({past, middle, low, high, caption: said.join(" "), width: Math.max(width, 240)}),
      numbersOf(columns)];
  });
}

function drawn(tag, attributes, ...parts) {
  const made = document.createElementNS($("drawing").namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...parts);
  return made;
}

// Round numbers between two, about as many as `count`.
function ticks(least, most, count) {
  const rough = (most - least) / count || 1, unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((factor) => factor * unit >= rough);
  const numbers = [];
  for (let k = Math.ceil(least / step); k * step <= most + step * 1e-9; ++k) numbers.push(k * step);
  return numbers;
}

// A path through points, in pieces where the value is missing; a piece of one point is a dot.
function path(points, kind) {
  let text = "", pen = "M";
  points.forEach(([x, y], index) => {
    if (Number.isNaN(y)) { pen = "M"; return; }
    const isAlone = pen === "M" && Number.isNaN(points[index + 1]?.[1] ?? NaN);
    text += `${pen}${x.toFixed(1)} ${y.toFixed(1)}${isAlone ? "h0" : ""}`;
    pen = "L";
  });
  return drawn("path", {d: text, class: kind});
}

// The figure of one channel: `past` are its values, NaN where they are missing, `middle` its
// forecast, and `low` and `high` the band around it, or null.
function chart({past, middle, low, high, caption, width}) {
  const shown = past.slice(-Math.max(LEAST_PAST, 3 * middle.length)), left = -shown.length + 1;
  const known = [...shown, ...middle, ...(low || []), ...(high || [])].filter(Number.isFinite);
  let least = Math.min(...known), most = Math.max(...known);
  const room = (most - least) * 0.05 || Math.abs(most) * 0.1 || 1;
  least -= room;
  most += room;
  const right = width - MARGIN.right, bottom = CHART_HEIGHT - MARGIN.bottom;
  const x = (time) => MARGIN.left + (time - left) / (middle.length - left || 1) * (right - MARGIN.left);
  const y = (value) => bottom - (value - least) / (most - least) * (bottom - MARGIN.top);
  const line = (values, first) => values.map((value, k) => [x(first + k), y(value)]);
  const svg = drawn("svg", {
    viewBox: `0 0 ${width} ${CHART_HEIGHT}`, class: "chart", role: "img",
    "aria-label": `${caption} ${past.length} values and a forecast of ${middle.length}`.trim(),
  });
  for (const value of ticks(least, most, 4)) {
    const at = y(value).toFixed(1);
    svg.append(drawn("path", {d: `M${MARGIN.left} ${at}H${right}`, class: "grid"}),
      drawn("text", {x: MARGIN.left - 6, y: at, dy: "0.35em", "text-anchor": "end"}, shortNumber(value)));
  }
  for (const time of ticks(left, middle.length, width < 500 ? 5 : 10).filter(Number.isInteger)) {
    const label = time > 0 ? `+${time}` : `${time}`.replace("-", "\u2212");
    svg.append(drawn("text", {x: x(time), y: CHART_HEIGHT - 6, "text-anchor": "middle"}, label));
  }
  svg.append(drawn("path", {d: `M${x(0.5).toFixed(1)} ${MARGIN.top}V${bottom}`, class: "now"}));
  if (low) {
    const edge = [...line(high, 1), ...line(low, 1).reverse()];
    const points = edge.map((point) => point.map((n) => n.toFixed(1)).join());
    svg.append(drawn("polygon", {points: points.join(" "), class: "band"}));
  }
  svg.append(path(line(shown, left), "past"), path(line(middle, 1), "forecast"));
  const figure = element("figure"), said = element("figcaption", caption, "note");
  if (shown.length < past.length) {
    said.append(` The last ${shown.length} of ${past.length} values are shown.`);
  }
  const keys = [["past", "values"], ["forecast", "forecast"], ...(low ? [["band", "band"]] : [])];
  for (const [kind, text] of keys) {
    const sign = kind === "band" ? drawn("rect", {width: 18, height: 10, class: kind})
      : drawn("path", {d: "M1 5H17", class: kind});
    said.append(drawn("svg", {viewBox: "0 0 18 10", class: "key"}, sign), text);
  }
  figure.append(svg, said);
  return figure;
}

// The numbers of a forecast, times down and names across, below a line that opens them.
function numbersOf(columns) {
  const table = element("table"), head = table.createTHead().insertRow();
  for (const name of ["time", ...columns.map(([name]) => name)]) head.append(header(name, "col"));
  const body = table.createTBody();
  columns[0][1].forEach((_, time) => {
    const row = body.insertRow();
    row.append(header(`+${time + 1}`, "row"));
    for (const [, values] of columns) row.insertCell().textContent = shortNumber(values[time]);
  });
  const details = element("details", "", "numbers"), box = element("div");
  box.append(table);
  details.append(element("summary", "Numbers"), box);
  return details;
}

