// A queue: what waits in it and why, its first messages, and what can be done about it.

import { deed } from "./deeds.js";
import { $, h, put, keyed } from "./dom.js";
import { ask } from "./feed.js";
import { rights } from "./rights.js";
import { tell } from "./story.js";

const AGAIN_MS = 2000;
let open_ = null;
let pausing = null;

export function open(queue) {
  const dialog = $("sheet");
  open_ = queue;
  pausing = null;
  const title = queue.to ? `${queue.node} to ${queue.to}` : queue.key;
  dialog.replaceChildren(
    h("div", { class: "bar" }, h("h2", { id: "sheet-title" }, title),
      h("button", { type: "button", onclick: () => dialog.close(), "aria-label": "Close" }, "×")),
    h("div", { class: "buttons" }, ...(rights.act ? can(queue, title) : [])),
    h("div", { class: "why" }),
  );
  dialog.onclose = () => {
    open_ = pausing = null;
  };
  dialog.showModal();
  refresh(queue);
}

function can(queue, title) {
  const again = () => load(queue);
  const of = { node: queue.node, queue: queue.name };
  if (queue.to) {
    pausing = {
      pause: deed("Pause", { deed: "pause", ...of }, { then: again }),
      resume: deed("Resume", { deed: "resume", ...of }, { then: again }),
    };
    offer(queue);
    return [
      pausing.pause,
      pausing.resume,
      deed("Purge", { deed: "purge", ...of }, { ask: `Delete all that waits from ${title}? It cannot be brought back.`, grave: true, then: again }),
    ];
  }
  const purge = deed("Purge", { deed: "purge", ...of }, {
    ask: `Delete all that is in ${title}? It cannot be brought back.`, grave: true, then: again,
  });
  if (queue.kind !== "kept") return [purge];
  return [
    deed("Return all", { deed: "return", ...of }, { ask: `Send all that is in ${title} to where it was going once more?`, then: again }),
    purge,
  ];
}

/** Show the one of both buttons that changes something; it takes over the focus of the other. */
function offer(queue) {
  const [there, gone] = queue.state === "on hold" ? [pausing.resume, pausing.pause] : [pausing.pause, pausing.resume];
  const focused = document.activeElement === gone;
  there.hidden = false;
  gone.hidden = true;
  if (focused) there.focus();
}

/** A new state has come, and somebody else may have paused or resumed the queue that is open. */
export function seen(outgoing) {
  const now = pausing && outgoing.find((each) => each.key === open_.key);
  if (now) offer(now);
}

async function refresh(queue) {
  while (open_ === queue) {
    await load(queue);
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

async function load(queue) {
  const why = $("sheet").querySelector(".why");
  try {
    const { lines } = await ask("/explain", { node: queue.node, of: queue.to || queue.name });
    if (open_ !== queue) return;
    const all = lines.length ? lines : [{ text: "nothing waits", message: "" }];
    keyed(why, named(all), (line) => line.key, row, fill);
  } catch (error) {
    if (open_ === queue) keyed(why, named([{ text: error.message, message: "" }]), (line) => line.key, row, fill);
  }
}

/** Lines with keys: one about a message keeps its key, and so the focus, when those before it go. */
function named(lines) {
  const seen = new Map();
  return lines.map((line) => {
    const number = seen.get(line.message) || 0;
    seen.set(line.message, number + 1);
    return { ...line, key: `${line.message} ${number}` };
  });
}

/** A line of mqproto explain; one about a message leads to its story. */
function row(line) {
  if (!line.message) return h("p");
  const follow = () => {
    $("sheet").close();
    tell(line.message);
  };
  return h("p", { class: "inner" }, h("button", { type: "button", class: "opens", onclick: follow }, line.message), h("span"));
}

function fill(node, line) {
  const text = line.text.trimStart();
  if (line.message) {
    put(node.lastChild, text.slice(line.message.length));
  } else {
    put(node, text);
    node.className = line.text.startsWith(" ") ? "inner" : "";
  }
}
