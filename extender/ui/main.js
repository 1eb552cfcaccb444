// The page: takes what the stream tells, and draws what has changed, once a frame at the most.

import { explain } from "./answers.js";
import { Chart, rowsOf } from "./chart.js";
import { Palette } from "./colours.js";
import { Details } from "./details.js";
import { count, el, percent, setText } from "./dom.js";
import { PodMap } from "./map.js";
import { Model, byName } from "./model.js";
import { ELSEWHERE, Search } from "./search.js";
import { Stream } from "./stream.js";
import { Order, tables } from "./tables.js";
import { WhatIf } from "./whatif.js";

const $ = (id) => document.getElementById(id);
const TABLE_MS = 2_000; // not drawn more often than that
const CHART_MS = 2_000;
const SAID_MS = 5_000;
const LEGEND = 12;
const KINDS = ["vpod", "pod", "node", "zone", "tenant"]; // what can be selected
const NARROW = "(max-width: 60rem)"; // the side is not beside the map, but above it

const model = new Model();
const palette = new Palette();
const order = new Order();
let place = new URLSearchParams(); // what the address says
let pool = null; // until the address has been read
let loaded = false; // whether this pool's own snapshot is there: before that nothing is known of its pods and vpods
let selection = null;
let connection = ["lost", "connecting"];
let changed = null;
let said = "";
let unfound = ""; // what was looked for in all pools, and is in none
const chartPace = pace(CHART_MS);
const tablePace = pace(TABLE_MS);
const sayPace = pace(SAID_MS);

const map = new PodMap($("map"), model, palette, select);
const chart = new Chart($("chart"));
const details = new Details($("side"), model, palette, { select, row: showRow, clear, whatIf: openWhatIf, pool: () => pool, loaded: () => loaded, follow: choosePool });
const whatIf = new WhatIf($("side"), model, { select, show: (deltas, toCome) => map.plan(deltas, toCome), close: closeWhatIf, pool: () => pool });
const search = new Search($("search"), $("found"), model, found);
const stream = new Stream(take, (state, text) => {
  connection = [state, text];
  draw();
});

/** Keeps something from happening too often: `due()` says whether it is time, and has all drawn again when it is. */
function pace(ms) {
  let last = -Infinity;
  let timer = 0;
  return {
    due() {
      const wait = last + ms - performance.now();
      if (wait <= 0) last = performance.now();
      else timer ||= setTimeout(() => ((timer = 0), draw()), wait);
      return wait <= 0;
    },
    reset() {
      last = -Infinity;
    },
  };
}

// -- what comes ---------------------------------------------------------------------------------------------------------

function take(name, data) {
  note(name === "snapshot" ? model.snapshot(data) : model.news(data));
  loaded ||= name === "snapshot";
  if (!model.pools.has(pool) && model.pools.size > 0 && !place.get("pool")) return follow([...model.pools.keys()].sort(byName)[0]);
  draw();
}

function note(news) {
  for (const section of Object.keys(news)) {
    changed ??= {};
    changed[section] = new Set([...(changed[section] ?? []), ...news[section]]);
  }
}

/** Show a pool; until it is told there is nothing of it, and nothing of the one before either. */
function follow(key) {
  pool = key;
  loaded = false;
  note(model.forgetPool());
  stream.open(key);
}

let asked = false;
let due = false;

/** Draw what has come or been chosen, in the next frame. */
function draw() {
  due = true;
  ask();
}

function ask() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    drawNow();
  });
}

function drawNow() {
  const news = changed ?? {};
  changed = null;
  if (news.namespaces?.size) news.pods = new Set([...(news.pods ?? []), ...model.podsOfNamespaces(news.namespaces)]); // other tenants have what is on them
  if (news.vpods?.size || news.pods?.size) palette.learn(model.slotsByTenant().keys());
  if (news.pods?.size || news.nodes?.size) map.update(news.pods ?? new Set(), news.nodes ?? new Set());
  if (!map.draw()) ask(); // the rest of the pods in the next frame
  if (!due) return;
  due = false;
  $("loading").hidden = loaded;
  const none = model.service.size > 0 && model.pools.size === 0; // there is nothing to choose, to sort or to plan
  for (const id of ["view", "what-if", "legend"]) $(id).hidden = none;
  document.querySelector(".pool-field").hidden = none;
  $("map-region").setAttribute("aria-busy", String(!loaded));
  drawPools();
  drawSummary();
  drawNotices();
  drawLegend();
  drawTable();
  const seen = ["pods", "vpods", "nodes", "tenancy", "tenants", "namespaces", ...(model.pools.size > 1 || !selection ? ["pools"] : [])];
  if (!whatIf.open) drawSide(seen.some((section) => news[section]?.size));
  say();
}

// -- the top ------------------------------------------------------------------------------------------------------------

function drawPools() {
  const keys = [...new Set([...model.pools.keys(), ...(pool ? [pool] : [])])].sort(byName);
  const chooser = $("pool");
  const shown = [...chooser.options].map((option) => option.value);
  if (shown.length !== keys.length || shown.some((key, index) => key !== keys[index])) {
    chooser.replaceChildren(...keys.map((key) => el("option", { value: key }, key)));
  }
  chooser.value = pool;
}

function drawSummary() {
  const known = model.pools.get(pool);
  document.querySelector(".summary").hidden = !known;
  const numbers = known
    ? [
        ["pods", known.pods, `${known.schedulablePods} take work`],
        ["slots used", known.usedSlots, `${percent(known.usedSlots, known.slots)} of ${known.slots.toLocaleString("en")}`],
        ["slots free", known.freeSlots, known.closedSlots ? `${known.closedSlots.toLocaleString("en")} more are closed` : `${known.slotsPerPod} a pod`],
        ["unserved", known.unservedVReplicas ?? 0, `vreplicas of ${count(known.unavailableVPods ?? 0, "vpod")}`, known.unservedVReplicas > 0],
        ["waiting", known.pendingVReplicas, "vreplicas", known.pendingVReplicas > 0],
        ["vpods", known.vpods, `profile ${known.profile}`],
        ...(known.load ? [["hottest pod", known.load.maxToMean, `times the mean ${known.load.metric}; target ${known.load.target}`]] : []),
      ]
    : [];
  if (known?.unservedVReplicas) document.title = `(${known.unservedVReplicas} unserved) vreplicas`;
  else document.title = known?.pendingVReplicas ? `(${known.pendingVReplicas} waiting) vreplicas` : "vreplicas";
  const list = $("numbers");
  if (list.children.length !== numbers.length) {
    list.replaceChildren(...numbers.map(() => el("div", {}, el("dt"), el("dd", {}, el("strong"), el("span")))));
  }
  numbers.forEach(([title, value, note, bad = false], index) => {
    const box = list.children[index];
    setText(box.querySelector("dt"), title);
    setText(box.querySelector("strong"), value.toLocaleString("en"));
    setText(box.querySelector("span"), note);
    box.classList.toggle("bad", bad);
  });
  if (!known || $("chart").hidden) chartPace.reset();
  if (chartPace.due()) chart.draw(known ? rowsOf(model.history, known) : []);
}

function drawNotices() {
  const { shadow = false, problems = [], identity = "" } = model.replica;
  const known = model.pools.get(pool);
  const notices = [];
  if (whatIf.open) notices.push(["what-if", "What if: you see a plan. Nothing is changed by it."]);
  if (connection[0] !== "live" && model.service.size > 0) notices.push(["bad", `Not live: ${connection[1]}. This is what was known last.`]);
  if (problems.length > 0) notices.push(["bad", `This replica is not ready: ${problems.join(", ")}.`]);
  if (shadow) notices.push(["note", "Shadow mode: another scheduler decides. This replica compares and writes nothing."]);
  if (unfound) notices.push(["bad", unfound]);
  if (known?.problem) notices.push(["bad", `The pool is not ready: ${known.problem}.`]);
  if (known && !shadow && !known.leads) {
    notices.push(["note", known.leader && known.leader !== identity ? `Led by ${known.leader}: this is what this replica has seen of it.` : "Nobody leads this pool at the moment: nothing is placed until somebody does."]);
  }
  const missing = model.notListed.get("pods") ?? 0;
  if (missing > 0) notices.push(["note", `${count(missing, "pod")} more are not shown.`]);
  if (model.service.size > 0 && model.pools.size === 0) notices.push(["note", "There is no AdapterPool yet."]);
  else if (model.service.size > 0 && pool && !known) notices.push(["bad", `Pool ${pool} is not known here.`]);
  const shown = notices.map(([kind, text]) => `${kind} ${text}`).join("\n");
  if ($("notices").dataset.shown === shown) return;
  $("notices").dataset.shown = shown;
  $("notices").replaceChildren(...notices.map(([kind, text]) => el("p", { class: `notice ${kind}` }, text)));
  document.documentElement.classList.toggle("what-if", whatIf.open);
}

function drawLegend() {
  const tenants = [...model.slotsByTenant()].sort(([a, m], [b, n]) => n - m || byName(a, b)).slice(0, LEGEND);
  const key = (classes, text) => el("span", { class: "key" }, el("i", { class: classes }), text);
  const shown = tenants.map(([tenant]) => tenant).join(" ");
  if ($("legend").dataset.shown === shown && $("legend").firstChild) return;
  $("legend").dataset.shown = shown;
  const more = model.slotsByTenant().size - tenants.length;
  $("legend").replaceChildren(
    ...tenants.map(([tenant]) => key(`swatch ${palette.classes(tenant)}`, tenant)),
    more > 0 ? el("span", { class: "quiet" }, `and ${count(more, "tenant")} more`) : "",
    el("span", { class: "rest" }, key("swatch free", "free"), key("swatch c-any reserved", "reserved"), key("swatch leaving", "leaving")),
  );
}

function drawTable() {
  const box = $("table");
  if (box.hidden || box.querySelector("button:active") || !tablePace.due()) return; // do not take it from under the pointer
  const scrolled = new Map([...box.children].map((it) => [it.dataset.table, [it.scrollLeft, it.scrollTop]]));
  const focused = box.contains(document.activeElement) ? document.activeElement : null;
  const link = (kind, name) => el("button", { type: "button", class: "link", "data-focus": `${kind} ${name}`, "aria-current": selection?.kind === kind && selection.name === name && "true", onclick: () => select(kind, name) }, name);
  const at = focused?.closest(".scroll")?.dataset.table;
  const known = model.pools.get(pool);
  box.replaceChildren(...tables(model, rowsOf(model.history, known), known?.slots ?? 0, link, order, sorted));
  for (const it of box.children) it.scrollTo(...(scrolled.get(it.dataset.table) ?? [0, 0]));
  if (!focused) return;
  const again = [...box.querySelectorAll("button")].find((it) => it.dataset.focus === focused.dataset.focus) ?? [...box.children].find((it) => it.dataset.table === at);
  again?.focus({ preventScroll: true });
}

/** A person has chosen what to sort by. */
function sorted(text) {
  remember();
  tablePace.reset();
  drawTable();
  setText($("live"), text);
}

/** Say what has changed for the worse or the better, not more often than it can be listened to. */
function say() {
  const [state, text] = connection;
  const known = model.pools.get(pool);
  setText($("replica"), model.replica.identity ? `${model.replica.identity}: ${text}` : text);
  $("replica").className = state;
  if (!known) return;
  const shut = known.pods - known.schedulablePods;
  const unserved = known.unservedVReplicas > 0 ? `nobody serves ${count(known.unservedVReplicas, "vreplica")}, ` : "";
  const summary = `${unserved}${count(known.pendingVReplicas, "vreplica")} waiting, ${count(shut, "pod")} not taking work${state === "live" ? "" : `, ${text}`}`;
  if (summary === said || !sayPace.due()) return;
  said = summary;
  setText($("live"), summary);
}

// -- what a person does -----------------------------------------------------------------------------------------------

let sideDrawn = "";
function drawSide(news) {
  const shown = `${loaded} ${selection?.kind} ${selection?.name}`;
  if (!news && shown === sideDrawn) return;
  sideDrawn = shown;
  details.draw(selection);
}

/** What the search has found. */
function found(kind, name) {
  if (kind === "pool") choosePool(name);
  else if (kind === ELSEWHERE) findElsewhere(name);
  else select(kind, name);
}

async function findElsewhere(vpod) {
  const from = pool;
  const { value, problem = "" } = await explain("vpod", vpod, pool, () => pool === from);
  if (pool !== from) return;
  const there = value?.pool ?? "";
  if (model.pools.has(there)) {
    if (there !== pool) choosePool(there);
    return select("vpod", vpod);
  }
  unfound = `${vpod}: ${problem || "it is in no pool that is known here."}`;
  draw();
}

function select(kind, name) {
  selection = { kind, name };
  unfound = "";
  document.documentElement.classList.add("selected");
  remember(true);
  map.select(selection);
  tablePace.reset(); // its row is marked
  draw();
  if (whatIf.open) return; // the plan stays beside it
  drawSide(true);
  showSide();
}

/** Show the tenants as a table, and in it one of them; "" for the first. */
function showRow(tenant) {
  if (tenant) select("tenant", tenant);
  showTable(true);
  remember(true);
  const rows = document.querySelector('[data-table="tenants"]');
  const found = [...(rows?.querySelectorAll("button.link") ?? [])].find((it) => !tenant || it.dataset.focus === `tenant ${tenant}`);
  found?.scrollIntoView({ block: "nearest" });
  found?.focus({ preventScroll: true });
}

/** Where the side is not beside the map, but above it. */
function showSide() {
  if (matchMedia(NARROW).matches) $("side").scrollIntoView({ block: "start" });
}

/** Show no details any more, and go back to where they were asked for. */
function clear() {
  map.focus();
  forget();
}

function forget() {
  selection = null;
  document.documentElement.classList.remove("selected");
  remember(true);
  search.clear();
  map.select(null);
  draw();
  drawSide(true);
}

function openWhatIf(target, how) {
  whatIf.start(target, how);
  $("what-if").setAttribute("aria-pressed", "true");
  draw();
  showSide();
}

function closeWhatIf() {
  whatIf.stop();
  $("what-if").setAttribute("aria-pressed", "false");
  sideDrawn = "";
  drawSide(true);
  draw();
  if (document.activeElement === document.body) $("what-if").focus();
}

/** Have the address say what is shown. `step`: the browser's back button leads to what was shown before. */
function remember(step = false) {
  const view = $("table").hidden ? {} : { view: "table" };
  const parts = { pool, ...(selection ? { [selection.kind]: selection.name } : {}), ...view, ...order.parameters };
  const address = `#${new URLSearchParams(parts)}`;
  if (address === location.hash) return;
  if (step) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}

/** Show what the address says: it was opened, pasted, or come back to. */
function visit() {
  place = new URLSearchParams(location.hash.slice(1));
  const kind = KINDS.find((it) => place.get(it));
  const wanted = place.get("pool") || [...model.pools.keys()].sort(byName)[0] || "";
  if (whatIf.open && wanted !== pool) closeWhatIf();
  unfound = "";
  selection = kind ? { kind, name: place.get(kind) } : null;
  document.documentElement.classList.toggle("selected", Boolean(selection));
  search.clear();
  order.read(place);
  showTable(place.get("view") === "table");
  if (wanted !== pool) follow(wanted);
  map.select(selection);
  draw();
  if (!whatIf.open) drawSide(true);
}

function choosePool(key) {
  if (whatIf.open) closeWhatIf();
  unfound = "";
  place.set("pool", key);
  follow(key);
  forget(); // the focus stays on the chooser: arrows may go on from there
}

function showTable(asTable) {
  $("table").hidden = !asTable;
  $("map").hidden = asTable;
  $("view").setAttribute("aria-pressed", String(asTable));
  tablePace.reset();
  drawTable();
}

$("pool").addEventListener("change", (event) => choosePool(event.target.value));
$("what-if").addEventListener("click", () => (whatIf.open ? closeWhatIf() : openWhatIf()));
$("view").addEventListener("click", () => {
  showTable($("table").hidden);
  remember(true);
  if (matchMedia(NARROW).matches) $("map-region").scrollIntoView({ block: "start" });
});
$("table").addEventListener("pointerup", draw);
window.addEventListener("hashchange", visit);
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.target.closest("select")) return;
  if (whatIf.open) closeWhatIf();
  else if (selection) clear();
});

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  $("theme").value = theme;
}
try {
  setTheme(localStorage.getItem("vreplicas theme") ?? "");
} catch {
  setTheme(""); // storage is not allowed here: the system's theme it is
}
$("theme").addEventListener("change", (event) => {
  setTheme(event.target.value);
  try {
    localStorage.setItem("vreplicas theme", event.target.value);
  } catch {
    // The choice lasts until the page is closed.
  }
});

visit();
