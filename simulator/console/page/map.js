// The route map. Where boxes and ways are the console says (simulator/console/routemap.py); here they are shown,
// chosen, and followed by dots: one for a few messages that have crossed since the last moment.

import { $, put, s } from "./dom.js";
import { count, rate } from "./words.js";

const NARROW_PX = 560;
const DOTS = 6;
const FLIGHT_MS = 700;
const ASIDE = 6;

let plan = null;
let drawn = null;
let crossed = new Map();
let chosen = "";
let dots = [];
const still = matchMedia("(prefers-reduced-motion: reduce)");

export const STATES = { cut: "cut", stall: "stalled", slow: "slow" };

export function lay(map, choose) {
  plan = { ...map, choose };
  drawn = null;
}

/** What a link is now, in a word. */
export const linkState = (link) => STATES[link.broken] || (link.open ? "open" : "no session");
/** The same of a node. */
export const nodeState = (node) =>
  !node.running ? "down" : node.silent_s ? `silent for ${node.silent_s} s` : node.disk_is_full ? "disk full" : "up";

export function mark(key) {
  chosen = key;
  if (!drawn) return;
  for (const [other, parts] of [...drawn.nodes, ...drawn.links]) {
    parts.group.setAttribute("aria-pressed", String(other === key));
  }
}

export function show(state) {
  if (!plan) return;
  const narrow = $("picture").clientWidth < NARROW_PX;
  if (!drawn || drawn.narrow !== narrow) draw(narrow);
  for (const link of state.links) {
    const parts = drawn.links.get(`link ${link.key}`);
    if (parts) showLink(parts, link);
  }
  for (const node of state.nodes) {
    const parts = drawn.nodes.get(`node ${node.name}`);
    if (parts) showNode(parts, node);
  }
}

function draw(narrow) {
  const sheet = narrow ? plan.narrow : plan.wide;
  const links = s("g"), nodes = s("g"), moving = s("g", { "aria-hidden": "true" });
  drawn = { narrow, links: new Map(), nodes: new Map(), moving };
  dots = [];
  for (const link of sheet.links) drawn.links.set(`link ${link.key}`, drawLink(links, link));
  for (const node of sheet.nodes) drawn.nodes.set(`node ${node.name}`, drawNode(nodes, node));
  const picture = s(
    "svg",
    { viewBox: `0 0 ${sheet.width} ${sheet.height}`, role: "group", "aria-label": "Nodes and the links between them" },
    links, moving, nodes,
  );
  picture.style.maxWidth = `${sheet.width * 1.25}px`;
  $("picture").replaceChildren(picture);
  mark(chosen);
}

function button(key, ...inner) {
  const group = s("g", { tabindex: "0", role: "button", "aria-pressed": "false", class: "pick" }, ...inner);
  group.addEventListener("click", () => plan.choose(key));
  group.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    plan.choose(key);
  });
  return group;
}

function drawLink(parent, link) {
  const [x, y] = link.middle;
  const path = s("path", { d: link.path, class: "way" });
  const wide = s("path", { d: link.path, class: "reach" });
  const mark = s("path", { d: link.path, class: "mark" });
  const place = { x: x + link.beside, "text-anchor": ["end", "middle", "start"][Math.sign(link.beside) + 1] };
  const [there, back] = link.upright ? [[-8, -24], [18, 34]] : [[-16, -31], [24, 40]];
  const flows = [there, back].map((lines) => {
    const [rate, waiting] = lines.map((line) => s("tspan", { ...place, y: y + line }));
    return { text: s("text", { class: "flow" }, rate, " ", waiting), rate, waiting };
  });
  const sign = s("g", { class: "sign", transform: `translate(${x} ${y})` }, s("circle", { r: 11 }), s("path", {}));
  const group = button(`link ${link.key}`, wide, mark, path, sign, ...flows.map((flow) => flow.text));
  parent.append(group);
  return { group, path, flows, sign, upright: link.upright, said: "" };
}

const SIGNS = { cut: "M-4.5 -4.5L4.5 4.5M4.5 -4.5L-4.5 4.5", stall: "M-3 -5V5M3 -5V5", slow: "M0 -5V0L3.5 3" };

function showLink(parts, link) {
  const what = linkState(link);
  parts.group.setAttribute("class", `pick link ${link.broken ? "wrong" : link.open ? "up" : "idle"}`);
  parts.sign.lastChild.setAttribute("d", SIGNS[link.broken] || "");
  const arrows = parts.upright ? ["↓", "↑"] : ["→", "←"];
  link.ways.forEach((way, place) => {
    put(parts.flows[place].rate, `${arrows[place]} ${rate(way.rate)}/s`);
    put(parts.flows[place].waiting, way.waiting ? `${count(way.waiting)} waiting` : "");
  });
  // What is seen is a part of what is read out, so that those who speak to their computer can say it.
  const seen = parts.flows.map((flow) => flow.text.textContent).join("");
  call(parts, what, `Link ${link.between.join(" to ")}, ${what}: ${seen}`);
  link.ways.forEach((way, place) => follow(parts, `${link.key} ${place}`, way, place));
}

/** Name what can be chosen. While it has the focus, each new name is read out: it has one if its state is another. */
function call(parts, state, name) {
  if (parts.group === document.activeElement && parts.said === state) return;
  parts.said = state;
  parts.group.setAttribute("aria-label", name);
}

function drawNode(parent, node) {
  const { x, y, width, height } = node;
  const box = s("rect", { x: x - width / 2, y: y - height / 2, width, height, rx: 8, class: "box" });
  const name = s("text", { x, "text-anchor": "middle", class: "name" });
  const first = y + 4.5 - 8.5 * node.lines.length;
  node.lines.forEach((line, place) => name.append(s("tspan", { x, y: first + 17 * place }, line)));
  const below = s("text", { x, y: first + 17 * node.lines.length + 2, "text-anchor": "middle", class: "below" });
  const group = button(`node ${node.name}`, box, name, below);
  parent.append(group);
  const whole = node.lines.join("") === node.name ? "" : `, ${node.name}`;
  return { group, below, whole, said: "" };
}

function showNode(parts, node) {
  const what = nodeState(node);
  parts.group.setAttribute("class", `pick node ${what === "up" ? "up" : node.running ? "silent" : "down"}`);
  const said = [];
  if (what !== "up") said.push(what);
  if (node.running) {
    said.push(`${count(node.waiting)} in queues`);
    if (node.held) said.push(`${count(node.held)} held`);
  }
  put(parts.below, ` ${said.slice(0, 2).join(" · ")}`);
  call(parts, what, `Node ${parts.group.textContent}, ${what}${parts.whole}`);
}

// Dots

function follow(parts, key, way, place) {
  const before = crossed.get(key);
  crossed.set(key, way.crossed);
  if (before === undefined || way.crossed <= before || still.matches || document.hidden) return;
  const some = Math.min(DOTS, Math.ceil(Math.log2(way.crossed - before + 1)));
  const now = performance.now();
  for (let number = 0; number < some; number += 1) {
    const dot = s("circle", { r: 4.5, class: `dot way-${place}` });
    dot.style.visibility = "hidden";
    drawn.moving.append(dot);
    dots.push({ dot, path: parts.path, back: place === 1, from: now + (number * 400) / some });
  }
  if (dots.length === some) requestAnimationFrame(move);
}

function move(now) {
  dots = dots.filter(({ dot, path, back, from }) => {
    const part = (now - from) / FLIGHT_MS;
    if (part >= 1 || !path.isConnected) {
      dot.remove();
      return false;
    }
    if (part >= 0) {
      const length = path.getTotalLength();
      const at = length * (back ? 1 - part : part);
      const here = path.getPointAtLength(at);
      const next = path.getPointAtLength(Math.min(length, at + 1));
      const last = path.getPointAtLength(Math.max(0, at - 1));
      const [dx, dy] = [next.x - last.x, next.y - last.y];
      const size = Math.hypot(dx, dy) || 1;
      const aside = back ? ASIDE : -ASIDE;
      dot.setAttribute("cx", here.x - (dy / size) * aside);
      dot.setAttribute("cy", here.y + (dx / size) * aside);
      dot.style.visibility = "visible";
    }
    return true;
  });
  if (dots.length) requestAnimationFrame(move);
}

/** After a pause nothing flies: what crossed meanwhile is not seen. */
export const forget = () => {
  crossed = new Map();
};
