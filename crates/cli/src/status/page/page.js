"use strict";
// Shows the samples of the daemon. All text is inserted as text and never as HTML.

const $ = (id) => document.getElementById(id);
const HOUR_MS = 3600 * 1000;
// A chart of a new mount covers at least this time.
const SHORTEST_MS = 300 * 1000;
// The daemon sends something at least every five seconds.
const SILENCE_MS = 8000;
const ROLES = { L: "log", M: "metadata", D: "data", G: "gc", ".": "free", X: "bad" };
const ROLE_NAMES = { log: "log", metadata: "metadata", data: "data", gc: "moved by GC", free: "free", bad: "cannot be written" };
let hour = [];
let map = null;
let last = null;
let heardAt = 0;
let events = null;

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function bytes(count) {
  if (count === null || count === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let power = 0;
  while (count >= 1024 && power < units.length - 1) { count /= 1024; power += 1; }
  const digits = power === 0 || count >= 100 ? 0 : 1;
  return `${count.toFixed(digits)} ${units[power]}`;
}

const rate = (count) => `${bytes(count)}/s`;
const ratio = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.001) return `${(value * 1e6).toFixed(0)} µs`;
  return value < 1 ? `${(value * 1e3).toFixed(1)} ms` : `${value.toFixed(1)} s`;
}

function span(total) {
  const minutes = Math.floor(total / 60);
  if (minutes < 1) return `${Math.floor(total)} s`;
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h${minutes % 60 > 0 ? ` ${minutes % 60} min` : ""}`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

// Replaces the rows of a table. The first row is the head, if `hasHead`.
function fill(table, rows, hasHead = true) {
  table.replaceChildren(...rows.map((cells, row) => {
    const line = element("tr");
    line.append(...cells.map((cell) => {
      const isSlow = typeof cell === "object";
      return element(hasHead && row === 0 ? "th" : "td", isSlow ? cell.text : cell, isSlow ? "slow" : "");
    }));
    return line;
  }));
}

function showAlerts(alerts) {
  const lines = alerts.map((alert) => {
    const line = element("div", undefined, `alert ${alert.level}`);
    line.append(element("b", alert.level), element("span", `${alert.what}. What helps: ${alert.remedy}.`));
    return line;
  });
  if (lines.length === 0) lines.push(element("div", "No trouble found.", "alert fine"));
  const said = lines.map((line) => line.textContent).join("\n");
  // Replaced only when it changes, so that screen readers do not repeat it.
  if ($("alerts").dataset.said === said) return;
  $("alerts").dataset.said = said;
  $("alerts").replaceChildren(...lines);
}

function tile(name, value, detail, isOn) {
  const made = element("dl", undefined, isOn ? "tile on" : "tile");
  const shown = element("dd", value);
  if (detail) shown.append(element("small", detail));
  made.append(element("dt", name), shown);
  made.style.margin = "0";
  return made;
}

function showTiles({ sample, rates }) {
  const { stored, metadata, gc } = sample.stats;
  const device = Object.values(rates.device_bytes_per_second_by_cause).reduce((sum, value) => sum + value, 0);
  const of = (kind) => rates.requests[kind] || {};
  const tiles = [
    tile("Written by programs", rate(rates.written_bytes_per_second), `p99 ${seconds(of("write").p99)}`),
    tile("Read by programs", rate(rates.read_bytes_per_second), `p99 ${seconds(of("read").p99)}`),
    tile("Written to the device", rate(device), `${bytes(sample.stats.written.device_bytes)} since the mount`),
    tile("Write amplification", ratio(rates.amplification), `${ratio(sample.stats.written.amplification)} since the mount`),
    tile("Sync, p99", seconds(of("sync").p99), `${(of("sync").per_second || 0).toFixed(1)} per second`),
    tile("Available", bytes(stored.available_bytes), `of ${bytes(stored.total_bytes)}; ${bytes(stored.live_bytes)} live`),
    tile("Dead", bytes(stored.dead_bytes), "reclaimed by GC when needed"),
    tile("Cache of metadata", `${Math.floor(100 * metadata.pages_cached / Math.max(1, metadata.pages_cached_max))} %`,
      `${rates.nodes_read_per_second.toFixed(0)} misses per second`),
  ];
  if (gc) {
    const isOn = gc.moved_per_written > 0;
    tiles.push(
      tile("Throttle", isOn ? "ON" : "off", isOn ? `${gc.moved_per_written.toFixed(1)} bytes moved per written byte`
        : `headroom ${bytes(gc.headroom_bytes)}`, isOn),
      tile("GC debt", gc.debt_bytes === null ? "no victim" : bytes(gc.debt_bytes), `${bytes(gc.charged_bytes)} charged to writers`),
      tile("Reclaimed by GC", `${gc.zones_reclaimed} zones`, `${gc.blocks_moved} blocks moved`));
  }
  const faults = sample.zone_faults;
  const bad = faults.offline + faults.read_only + faults.retired + (gc ? gc.blocks_lost : 0);
  tiles.push(tile("Device health", bad === 0 ? "good" : "faults",
    `${faults.offline} offline, ${faults.read_only} read-only, ${faults.retired} retired zones`, bad > 0));
  $("tiles").replaceChildren(...tiles);
}

function showTables({ sample, rates }) {
  const times = ["p50", "p99", "p999", "max"];
  fill($("requests"), [["kind", "per s", "median", "99 %", "99.9 %", "longest"]].concat(
    Object.entries(rates.requests).map(([kind, of]) => [kind, of.per_second.toFixed(1)].concat(
      times.map((name) => (of[name] > 1 ? { text: seconds(of[name]) } : seconds(of[name])))))));
  const { user_bytes: user, device_bytes_by_cause: causes } = sample.stats.written;
  fill($("causes"), [["cause", "now", "since mount", "of user writes"]].concat(
    Object.entries(causes).map(([cause, count]) => [cause.replace("_", " "),
      rate(rates.device_bytes_per_second_by_cause[cause] || 0), bytes(count), user > 0 ? (count / user).toFixed(3) : "–"])));
  fill($("open"), [["zone", "lifetime class", "live"]].concat(
    sample.open_zones.map((zone) => [String(zone.zone), zone.lifetime,
      `${Math.floor(100 * zone.live_blocks / Math.max(1, zone.capacity_blocks))} %`])));
  const info = sample.info;
  const zones = sample.stats.stored.zones_by_role;
  fill($("facts"), [
    ["identity", info.id], ["path", String(info.path)], ["options", info.options || "–"],
    ["zones", `${info.zones} of ${bytes(info.zone_bytes)}; ${Object.entries(zones).map(([role, count]) => `${role} ${count}`).join(", ")}`],
    ["daemon", `process ${info.pid}, release ${sample.version}`],
    ["copies of the header", info.copies.every((copy) => copy.state === "whole") ? "whole" : info.copies.map((copy) => `${copy.record} ${copy.state}`).join(", ")],
    ["last mount", info.last_mount && !info.last_mount.closed_properly ? "not closed properly" : "closed properly"],
  ], false);
}

function showReport(report) {
  last = report;
  const { sample } = report;
  const name = sample.info.label || sample.info.id;
  const worst = report.alerts.length > 0 ? report.alerts[0].level : "";
  document.title = worst ? `${worst.toUpperCase()}: ${name}` : `${name} – Polder`;
  $("name").textContent = name;
  $("place").textContent = `${sample.info.mounted_on || "lazily unmounted"}, `
    + `${sample.info.read_only ? "read-only" : "read-write"}, mounted for ${span(sample.up_seconds)}`;
  showAlerts(report.alerts);
  showTiles(report);
  showTables(report);
}

function showAge(age) {
  const isOld = age === null || age > 4;
  if (age !== null) heardAt = Date.now();
  $("age").className = isOld ? "old" : "";
  document.body.classList.toggle("stale", isOld);
  $("stale").hidden = !isOld;
  $("stale").textContent = "All values are old. What helps: see the log and the state of the daemon, and look for a device "
    + "that does not answer in the system's log.";
  if (age === null) {
    $("age").textContent = "the daemon does not answer";
    document.title = `NO ANSWER: ${$("name").textContent}`;
  } else $("age").textContent = isOld ? `no sample for ${span(age)}: the daemon or its device hangs` : "live";
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A canvas of the right size for the screen, cleared.
function prepared(canvas, height) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.width = Math.floor(width * scale);
  canvas.height = Math.floor(height * scale);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  return [pen, width];
}

// Lines of the last hour. A series is a name, a colour and a function of a point.
function chart(id, series, show) {
  const canvas = $(id), height = canvas.clientHeight;
  const [pen, width] = prepared(canvas, height);
  const [left, right, top, bottom] = [4, width - 4, 34, height - 16];
  const end = last ? last.sample.at_ms : Date.now();
  const points = hour.filter((point) => point.at_ms > end - HOUR_MS);
  const covered = points.length > 0 ? Math.max(SHORTEST_MS, end - points[0].at_ms) : HOUR_MS;
  const most = Math.max(1e-9, ...points.flatMap((point) => series.map(([, , of]) => of(point))));
  const x = (point) => right - (end - point.at_ms) / covered * (right - left);
  const y = (value) => bottom - value / most * (bottom - top);
  pen.font = "12px system-ui, sans-serif";
  pen.fillStyle = colour("--dim");
  pen.strokeStyle = colour("--line");
  pen.beginPath();
  pen.moveTo(left, top); pen.lineTo(right, top); pen.moveTo(left, bottom); pen.lineTo(right, bottom);
  pen.stroke();
  pen.fillText(points.length > 0 ? show(most) : "no data yet", left, top + 13);
  pen.fillText(`${span(covered / 1000)} ago`, left, height - 3);
  pen.textAlign = "right";
  pen.fillText("now", right, height - 3);
  pen.textAlign = "left";
  let at = left;
  for (const [name, paint, of] of series) {
    pen.fillStyle = pen.strokeStyle = colour(paint);
    pen.fillRect(at, 9, 10, 10);
    pen.fillText(name, at + 14, 18);
    at += pen.measureText(name).width + 28;
    pen.lineWidth = 1.5;
    pen.beginPath();
    points.forEach((point, index) => {
      if (index === 0) pen.moveTo(x(point), y(of(point))); else pen.lineTo(x(point), y(of(point)));
    });
    pen.stroke();
  }
}

function drawCharts() {
  chart("throughput", [["written", "--a", (p) => p.written], ["read", "--b", (p) => p.read], ["device", "--c", (p) => p.device]], rate);
  chart("latency", [["read", "--b", (p) => p.read_p99], ["write", "--a", (p) => p.write_p99], ["sync", "--c", (p) => p.sync_p99]], seconds);
  chart("headroom", [["headroom", "--a", (p) => p.headroom], ["GC debt", "--c", (p) => p.debt]], bytes);
  chart("space", [["available", "--a", (p) => p.available]], bytes);
}

function grid() {
  const count = map.cells.length / 2;
  const width = $("map").clientWidth;
  const size = Math.max(5, Math.min(22, Math.floor(Math.sqrt(width * 260 / count))));
  const columns = Math.max(1, Math.floor(width / size));
  return { count, size, columns };
}

function drawMap() {
  if (!map) return;
  const { count, size, columns } = grid();
  const height = Math.ceil(count / columns) * size;
  $("map").style.height = `${height}px`;
  const [pen] = prepared($("map"), height);
  const gap = size > 7 ? 1 : 0;
  // Asking for a colour takes long, and there are thousands of cells.
  const paints = Object.fromEntries(Object.entries(ROLES).map(([role, name]) => [role, colour(`--${name}`)]));
  for (let index = 0; index < count; index += 1) {
    const [role, level] = [map.cells[2 * index], map.cells[2 * index + 1]];
    const [left, top] = [(index % columns) * size, Math.floor(index / columns) * size];
    const side = size - gap;
    pen.fillStyle = paints["."];
    pen.fillRect(left, top, side, side);
    if (role === ".") continue;
    const share = level === "*" || level === "X" ? 1 : level === "+" || level === "." ? 0 : Number(level) / 10;
    pen.fillStyle = paints[role];
    pen.globalAlpha = 0.25;
    pen.fillRect(left, top, side, side);
    pen.globalAlpha = 1;
    pen.fillRect(left, top + side * (1 - share), side, side * share);
    if (level === "+") { pen.fillRect(left, top + side / 2 - 1, side, 2); pen.fillRect(left + side / 2 - 1, top, 2, side); }
  }
}

function showCell(event) {
  if (!map) return;
  const { count, size, columns } = grid();
  const index = Math.floor(event.offsetY / size) * columns + Math.floor(event.offsetX / size);
  if (index < 0 || index >= count || event.offsetX >= columns * size) return;
  const [role, level] = [map.cells[2 * index], map.cells[2 * index + 1]];
  const first = index * map.zones_per_cell;
  const end = Math.min(map.zones, first + map.zones_per_cell) - 1;
  const zones = first === end ? `Zone ${first}` : `Zones ${first} to ${end}, mostly`;
  const live = level === "+" ? ", being written" : level === "*" ? ", nearly all live"
    : /\d/.test(level) ? `, about ${level}0 % live` : "";
  $("cell").textContent = `${zones}: ${ROLE_NAMES[ROLES[role]]}${live}.`;
}

function showLegend() {
  $("legend").replaceChildren(...Object.values(ROLES).map((role) => {
    const entry = element("span"), mark = element("i");
    mark.style.background = `var(--${role})`;
    entry.append(mark, ROLE_NAMES[role]);
    return entry;
  }), element("span", "filled part: live blocks; cross: being written"));
}

async function read(path) {
  return (await fetch(path, { signal: AbortSignal.timeout(4000) })).json();
}

async function fetchSlow() {
  try {
    const [zones, points] = await Promise.all(["/zones.json", "/history.json"].map(read));
    map = zones;
    hour = points;
    drawMap();
    drawCharts();
    // All event streams may be taken. A browser does not try again then.
    if (events.readyState === EventSource.CLOSED) connect();
    if (Date.now() - heardAt > SILENCE_MS) {
      const status = await read("/status.json");
      showReport(status.report);
      showAge(status.age_seconds);
    }
  } catch {
    if (Date.now() - heardAt > SILENCE_MS) showAge(null);
  }
}

function connect() {
  events = new EventSource("/events");
  events.addEventListener("report", (event) => { showReport(JSON.parse(event.data)); showAge(0); });
  events.addEventListener("age", (event) => showAge(Number(event.data)));
}

showLegend();
connect();
fetchSlow();
setInterval(fetchSlow, 5000);
// A stopped daemon keeps its connections and says nothing.
setInterval(() => { if (heardAt > 0 && Date.now() - heardAt > SILENCE_MS) showAge(null); }, 1000);
$("map").addEventListener("mousemove", showCell);
$("map").addEventListener("click", showCell);
const redraw = () => { drawMap(); drawCharts(); };
window.addEventListener("resize", redraw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
