// Numbered messages from one node to another, and whether they come in order: something to break links under.

import { deed, say } from "./deeds.js";
import { $, h, keyed, put } from "./dom.js";
import { act } from "./feed.js";
import { rights } from "./rights.js";
import { count } from "./words.js";

const RATES = [2, 20, 200];

export function traffic(state) {
  const section = $("traffic");
  section.hidden = !rights.act || !state.breakable || state.nodes.length < 2;
  if (section.hidden) return;
  const inner = $("traffic-inner");
  if (!inner.firstChild) {
    const stop = deed("Stop", { deed: "traffic", rate: 0 });
    inner.append(form(state), h("div", { class: "buttons" }, stop), h("dl"));
  }
  const [asked, stops, told] = inner.children;
  const found = state.traffic;
  asked.hidden = Boolean(found && !found.failure && (found.running || found.received < found.sent));
  stops.hidden = !found || !found.running;
  const make = ([word]) => h("div", {}, h("dt", {}, word), h("dd", { "data-field": word }));
  keyed(told, facts(found), ([word]) => word, make, (node, [, text, style]) => {
    put(node.lastChild, text);
    node.lastChild.className = style;
  });
}

function form(state) {
  const names = state.nodes.map((node) => node.name);
  const choice = (id, label, values, chosen) => [
    h("label", { for: id }, label),
    h("select", { id }, ...values.map((value) => h("option", { selected: value === chosen }, String(value)))),
  ];
  const made = h("form", { class: "choices" },
    ...choice("traffic-from", "from", names, names[0]),
    ...choice("traffic-to", "to", names, names[names.length - 1]),
    ...choice("traffic-rate", "a second", RATES, 20),
    h("button", { type: "submit" }, "Send"));
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    const nodes = [$("traffic-from").value, $("traffic-to").value];
    try {
      const { lines } = await act({ deed: "traffic", nodes, rate: Number($("traffic-rate").value) });
      say(lines.join("; "));
    } catch (error) {
      say(error.message, true);
    }
  });
  return made;
}

function facts(found) {
  if (!found) return [];
  const wrong = (number) => [count(number), number ? "bad" : "good"];
  return [
    ...(found.failure ? [["ended", found.failure, "bad"]] : []),
    ["sent", count(found.sent), ""],
    ["received", count(found.received), ""],
    ["on the way", count(found.sent - found.received), ""],
    ["in order up to", count(found.last), ""],
    ["out of order", ...wrong(found.wrong)],
    ["twice", ...wrong(found.twice)],
  ];
}
