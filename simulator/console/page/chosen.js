// The node or link that was chosen on the map: what it does, and what can be done about it.

import { deed } from "./deeds.js";
import { $, h, keyed, put } from "./dom.js";
import { linkState, nodeState } from "./map.js";
import { rights } from "./rights.js";
import { bytes, count, rate } from "./words.js";

let key = "";

/** Show another one; a second time shows none. */
export function chosen(wanted, page) {
  key = wanted;
  $("chosen-inner").replaceChildren(h("dl"), ways(), h("div", { class: "buttons" }), h("p", { class: "faint" }));
  refresh(page);
}

export function refresh(page) {
  if (!key) return;
  const [kind, name] = [key.slice(0, 4), key.slice(5)];
  const found = page.state[`${kind}s`].find((each) => (kind === "node" ? each.name : each.key) === name);
  if (!found) return;
  const [facts, both, buttons, note] = $("chosen-inner").children;
  const told = kind === "node" ? nodeFacts(found, page.state) : linkFacts(found);
  both.hidden = kind === "node";
  if (kind === "link") fillWays(both, found);
  put($("chosen-title"), kind === "node" ? `Node ${name}` : `Link ${found.between.join(" – ")}`);
  keyed(facts, told, ([word]) => word, ([word]) => h("div", {}, h("dt", {}, word), h("dd")), (node, [word, text, style]) => {
    node.lastChild.dataset.field = word;
    put(node.lastChild, text);
    node.lastChild.className = style || "";
  });
  const breakable = page.state.breakable;
  const can = !rights.act || !breakable ? [] : kind === "node" ? nodeDeeds(found) : linkDeeds(found, breakable);
  keyed(buttons, can, ([word]) => word, ([word, order]) => deed(word, order), () => {});
  put(note, why(page, kind));
}

function why(page, kind) {
  if (!rights.act) return "You may look, and change nothing.";
  if (!page.state.breakable) return "These nodes are not those of a mqproto run: they are killed and linked elsewhere.";
  if (kind === "link" && !page.state.breakable.links) return "This run has --direct or --capture, so no link can be broken.";
  return "";
}

function nodeFacts(node, state) {
  const what = nodeState(node);
  const facts = [["state", what, what === "up" ? "good" : "bad"], ["listens at", node.address]];
  if (!node.running) return facts;
  const dead = state.queues.filter((queue) => queue.node === node.name && queue.kind === "kept");
  facts.push(
    ["sessions", count(node.sessions_open)],
    ["in its queues", count(node.waiting)],
    ["on the way from it", count(node.outgoing)],
    ["passed on", `${count(node.forwarded)}, ${rate(node.forwarded_s)} a second`],
    ["sent again", count(node.resent)],
    ["duplicates dropped", count(node.duplicates)],
    ["store", `${bytes(node.stored_bytes)} of ${bytes(node.quota_bytes)}`],
  );
  if (node.held) facts.push(["held behind gaps", count(node.held), "open"]);
  if (node.refused) facts.push(["refused", count(node.refused), "bad"]);
  if (node.expired) facts.push(["expired", count(node.expired), "bad"]);
  for (const queue of dead) facts.push([queue.name, count(queue.waiting)]);
  if (node.unlisted) facts.push(["more outgoing queues", count(node.unlisted)]);
  return facts;
}

const linkFacts = (link) => [
  ["state", linkState(link), link.broken ? "bad" : link.open ? "good" : "open"],
  ...link.ways.filter((way) => way.why).map((way) => [`to ${way.to}`, way.why]),
];

const WAYS = [
  ["a second", (way) => rate(way.rate)],
  ["in all", (way) => count(way.crossed)],
  ["waiting", (way) => count(way.waiting)],
  ["window", (way) => (way.session ? count(way.window) : "")],
  ["unacknowledged", (way) => (way.session ? count(way.unacknowledged) : "")],
  ["acknowledged in", (way) => way.acknowledged],
  ["round trip", (way) => way.round_trip],
  ["sent again", (way) => (way.resent ? count(way.resent) : "")],
];

/** What goes over a link, each way in a column. */
function ways() {
  return h("table", { class: "ways" }, h("caption", { class: "hidden-text" }, "Each way"),
    h("thead", {}, h("tr", {}, h("td"), h("th", { scope: "col" }), h("th", { scope: "col" }))), h("tbody"));
}

function fillWays(made, link) {
  const [, head, body] = made.children;
  link.ways.forEach((way, place) => put(head.firstChild.children[place + 1], `to ${way.to}`));
  const told = WAYS.map(([word, text]) => [word, ...link.ways.map(text)]).filter(([, ...texts]) => texts.some(Boolean));
  const make = ([word]) => h("tr", {}, h("th", { scope: "row" }, word), h("td"), h("td"));
  keyed(body, told, ([word]) => word, make, (row, [, ...texts]) => texts.forEach((text, place) => put(row.children[place + 1], text)));
}

const nodeDeeds = (node) =>
  node.running
    ? [["Kill", { deed: "kill", nodes: [node.name] }], ["Restart", { deed: "restart", nodes: [node.name] }]]
    : [["Restart", { deed: "restart", nodes: [node.name] }]];

function linkDeeds(link, breakable) {
  if (!breakable.links) return [];
  const order = (what) => ({ deed: what, nodes: link.between });
  const can = [["Cut", order("cut")], ["Stall", order("stall")], ["Slow", order("slow")], ["Mend", order("mend")]];
  const now = { cut: "Cut", stall: "Stall", slow: "Slow", "": "Mend" }[link.broken];
  return can.filter(([word]) => word !== now);
}
