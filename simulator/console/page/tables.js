// Tables whose rows stay as long as what they show is there. On a narrow screen each row is a card.

import { $, h, keyed, put, s } from "./dom.js";
import { age, bytes, count, rate } from "./words.js";

const COURSE = 120;
const ROWS = 300;
const courses = new Map();

/** A column: what it is called, how a row fills it, and whether it is left out where no row does. */
const column = (name, text, { right = true, field = "", sparse = false, cell = null } = {}) => ({
  name, text, right, field, sparse, cell,
});

function table(id, label, columns, empty) {
  const body = h("tbody");
  const head = h("tr", {}, ...columns.map((each) => h("th", { scope: "col", class: each.right ? "right" : "" }, each.name)));
  const made = h("table", { hidden: true }, h("caption", { class: "hidden-text" }, label), h("thead", {}, head), body);
  const nothing = h("p", { class: "faint", hidden: true }, empty);
  const more = h("p", { class: "faint" });
  $(id).replaceChildren(h("div", { class: "wide" }, made), nothing, more);
  return (rows) => {
    const shown = rows.slice(0, ROWS);
    keyed(body, shown, (row) => row.key, () => row(columns), (node, item) => fill(node, columns, item));
    columns.forEach((each, place) => {
      const out = each.sparse && !shown.some((item) => each.text(item));
      made.classList.toggle(`without-${place}`, out);
      for (const line of [head, ...body.children]) line.children[place].hidden = out;
    });
    made.hidden = !rows.length;
    nothing.hidden = rows.length > 0;
    put(more, rows.length > ROWS ? `${count(rows.length - ROWS)} more; type a part of a name above` : "");
  };
}

function row(columns) {
  return h("tr", {}, ...columns.map((each, place) => h(place ? "td" : "th", {
    scope: place ? null : "row", class: each.right ? "right" : "", "data-label": each.name, "data-field": each.field,
  })));
}

function fill(node, columns, item) {
  node.dataset.key = item.key;
  columns.forEach((each, place) => {
    if (each.cell) each.cell(node.children[place], item);
    else put(node.children[place], each.text(item));
  });
}

/** A name that opens what can be done about it. */
const opens = (text, open) => (cell, item) => {
  if (!cell.firstChild) cell.append(h("button", { type: "button", class: "opens", onclick: () => open(cell.item) }));
  cell.item = item;
  put(cell.firstChild, text(item));
};

/** How much waited of late. */
function course(cell, item) {
  if (!cell.firstChild) {
    cell.append(s("svg", { viewBox: "0 0 120 22", class: "course", "aria-hidden": "true" }, s("polyline", {})));
  }
  const values = courses.get(item.key) || [];
  const most = Math.max(1, ...values);
  const step = 120 / (COURSE - 1);
  const from = 120 - (values.length - 1) * step;
  const points = values.map((value, place) => `${(from + place * step).toFixed(1)},${(20 - (18 * value) / most).toFixed(1)}`);
  cell.firstChild.firstChild.setAttribute("points", points.join(" "));
}

/** Remember how much waits now. */
export function note(state) {
  const there = new Set();
  for (const queue of state.queues) {
    there.add(queue.key);
    if (!courses.has(queue.key)) courses.set(queue.key, []);
    const values = courses.get(queue.key);
    values.push(queue.waiting);
    if (values.length > COURSE) values.shift();
  }
  for (const key of courses.keys()) if (!there.has(key)) courses.delete(key);
}

const some = (number) => (number ? count(number) : "");

export function queues(open) {
  return table("queues-inner", "Queues of all nodes", [
    column("queue", null, { right: false, cell: opens((queue) => queue.key, open) }),
    column("waiting", (queue) => count(queue.waiting), { field: "waiting" }),
    column("of late", null, { cell: course, right: false }),
    column("oldest", (queue) => age(queue.age_s), { field: "age" }),
    column("in /s", (queue) => rate(queue.in_s), { field: "in" }),
    column("out /s", (queue) => rate(queue.out_s), { field: "out" }),
    column("given out", (queue) => some(queue.unsettled), { field: "unsettled", sparse: true }),
    column("held", (queue) => some(queue.held), { field: "held", sparse: true }),
    column("size", (queue) => size(queue), { field: "size" }),
    column("consumers", (queue) => count(queue.consumers), { field: "consumers" }),
    column("kind", (queue) => queue.kind, { right: false }),
  ], "No node that runs has a queue.");
}

function size(queue) {
  if (!queue.size_bytes) return queue.quota_bytes ? `0 of ${bytes(queue.quota_bytes)}` : "";
  return queue.quota_bytes ? `${bytes(queue.size_bytes)} of ${bytes(queue.quota_bytes)}` : bytes(queue.size_bytes);
}

export function outgoing(open) {
  return table("outgoing-inner", "What is on its way", [
    column("from and to", null, { right: false, cell: opens((queue) => `${queue.node} to ${queue.to}`, open) }),
    column("waiting", (queue) => count(queue.waiting), { field: "waiting" }),
    column("to be sent", (queue) => some(queue.unsent), { field: "unsent" }),
    column("in flight", (queue) => some(queue.in_flight), { field: "in_flight" }),
    column("no OrderAck", (queue) => some(queue.unacked), { field: "unacked", sparse: true }),
    column("not received", (queue) => some(queue.unread), { field: "unread", sparse: true }),
    column("resent", (queue) => some(queue.resent), { field: "resent", sparse: true }),
    column("next hop", (queue) => queue.next_hop, { right: false }),
    column("state", (queue) => queue.state, { right: false, field: "state" }),
    column("why it waits", (queue) => queue.why, { right: false, sparse: true }),
  ], "Nothing has been sent yet.");
}

export function sessions() {
  return table("sessions-inner", "Sessions, each way", [
    column("from and to", (way) => `${way.from} to ${way.to}`, { right: false }),
    column("window", (way) => some(way.window), { field: "window" }),
    column("unacknowledged", (way) => (way.session ? count(way.unacknowledged) : ""), { field: "unacknowledged" }),
    column("acknowledged in", (way) => way.acknowledged, { field: "acknowledged", sparse: true }),
    column("round trip", (way) => way.round_trip, { field: "round_trip", sparse: true }),
    column("crossed", (way) => count(way.crossed), { field: "crossed" }),
    column("a second", (way) => rate(way.rate)),
    column("resent", (way) => some(way.resent), { sparse: true }),
    column("state", (way) => (way.session ? "open" : way.why || "no session"), { right: false }),
  ], "No node has a session.");
}

/** What goes each way: over links, and between nodes and those who are in no topology. */
export const ways = (state) =>
  [...state.links.flatMap((link) => link.ways), ...state.others].map((way) => ({ ...way, key: `${way.from} to ${way.to}` }));
