// Sequences of transactional messages, each as a strip that the console has drawn (captures/drawing/sequence.py).

import { $, h, keyed, put, s, shape } from "./dom.js";
import { count } from "./words.js";

const NARROW_PX = 420;
const [WIDE, NARROW] = [560, 300];

export function sequences(list) {
  const inner = $("sequences-inner");
  if (!inner.firstChild) inner.append(h("p", { class: "faint" }), h("ul", { class: "strips" }));
  const [nothing, strips] = inner.children;
  put(nothing, list.length ? "" : "No transactional message has been sent of late.");
  nothing.hidden = list.length > 0;
  keyed(strips, list, (each) => each.key, make, update);
}

function make() {
  return h("li", {}, h("h3"), s("svg", { role: "img" }), h("p", { class: "faint" }));
}

function update(node, each) {
  const [title, strip, said] = node.children;
  put(title, `${each.node} to ${each.to}`);
  const words = [`confirmed ${count(each.confirmed)} of ${count(each.last)}`];
  if (each.missing) {
    const [first, last] = each.missing;
    words.push(first === last ? `number ${count(first)} is missing` : `numbers ${count(first)} to ${count(last)} are missing`);
  }
  if (each.held) words.push(`${count(each.held)} held`);
  if (each.resend) words.push(each.resend);
  put(said, words.join(" · "));
  const narrow = node.clientWidth < NARROW_PX;
  if (node.spoken === each.spoken && node.narrow === narrow) return;
  Object.assign(node, { spoken: each.spoken, narrow });
  strip.setAttribute("aria-label", each.spoken);
  strip.setAttribute("viewBox", `0 0 ${narrow ? NARROW : WIDE} 34`);
  strip.replaceChildren(shape(narrow ? each.narrow : each.strip));
}
