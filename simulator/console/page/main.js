// What the page does when something comes: the newest state is shown at the next frame, and what came before it is not.

import { chosen, refresh as refreshChosen } from "./chosen.js";
import { $, h, keyed, put } from "./dom.js";
import { listen } from "./feed.js";
import * as map from "./map.js";
import { rights } from "./rights.js";
import { sequences } from "./sequences.js";
import { open as openSheet, seen } from "./sheet.js";
import * as story from "./story.js";
import * as tables from "./tables.js";
import { traffic } from "./traffic.js";
import { count, rate } from "./words.js";

const page = { state: null, held: false, due: false };
const shown = { queues: tables.queues(openSheet), outgoing: tables.outgoing(openSheet), sessions: tables.sessions() };

listen({ event, lost, refused });
story.begin();
$("hold").addEventListener("click", () => {
  page.held = !page.held;
  $("hold").setAttribute("aria-pressed", String(page.held));
  put($("hold"), page.held ? "Go on" : "Hold the picture");
  later();
});
for (const name of ["filter", "filled"]) $(name).addEventListener("input", later);
addEventListener("resize", later);

function event(name, data) {
  if (name === "hello") {
    rights.act = data.may_act;
    document.title = `${data.console.topology} · mqproto console`;
    put($("topology"), data.console.topology);
    map.forget();
    map.lay(data.console, (key) => {
      map.mark(key);
      chosen(key, page);
    });
  } else if (name === "state") {
    page.state = data;
    tables.note(data);
    seen(data.outgoing);
    later();
  }
}

function pill(text, style) {
  put($("live"), text);
  $("live").className = `pill ${style}`;
}

function lost() {
  pill("the console does not answer; trying again", "bad");
}

function refused(text) {
  put($("gate"), text);
  $("gate").hidden = false;
  document.body.classList.add("closed");
  pill("closed", "bad");
}

function later() {
  if (page.due) return;
  page.due = true;
  requestAnimationFrame(() => {
    page.due = false;
    if (page.state && !page.held) show(page.state);
  });
}

function show(state) {
  pill(rights.act ? "live" : "live, to look only", "good");
  totals(state.totals);
  map.show(state);
  const sought = $("filter").value.toLowerCase();
  const filled = $("filled").checked;
  const meant = (text, item) => text.toLowerCase().includes(sought) && (!filled || item.waiting || item.held || item.unread);
  shown.queues(state.queues.filter((queue) => meant(queue.key, queue)));
  shown.outgoing(state.outgoing.filter((queue) => meant(`${queue.node} ${queue.to}`, queue)));
  shown.sessions(tables.ways(state));
  sequences(state.sequences.filter((each) => `${each.node} ${each.to}`.toLowerCase().includes(sought)));
  put($("left-out"), state.left_out ? `${count(state.left_out)} queues more, with less in them, are not told of` : "");
  traffic(state);
  refreshChosen(page);
  document.body.dataset.at = state.at_ms;
}

const TOTALS = [
  ["waiting", "in queues"],
  ["outgoing", "on the way"],
  ["in_s", "arrive a second", rate],
  ["held", "held behind gaps"],
  ["resent", "sent again"],
  ["duplicates", "duplicates dropped"],
  ["refused", "refused", count, "bad"],
  ["expired", "expired", count, "bad"],
  ["kept", "in journals and dead letters"],
];

function totals(values) {
  const make = ([name, text]) => {
    const where = h("button", { type: "button" }, "Where?");
    where.addEventListener("click", () => lead(name));
    return h("li", { "data-field": name }, h("b"), ` ${text} `, where);
  };
  keyed($("totals"), TOTALS, ([name]) => name, make, (node, [name, , form = count, style = ""]) => {
    put(node.firstChild, form(values[name]));
    node.className = values[name] ? style : "";
    node.lastChild.hidden = !node.className;
  });
}

/** From what is bad to the node that has most of it. */
function lead(name) {
  const [most] = page.state.nodes.filter((node) => node[name]).sort((one, other) => other[name] - one[name]);
  if (!most) return;
  map.mark(`node ${most.name}`);
  chosen(`node ${most.name}`, page);
  $("chosen-title").scrollIntoView({ block: "nearest" });
}
