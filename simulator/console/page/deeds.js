// What an operator does: asks first where it cannot be undone, and says what came of it.

import { $, h, put } from "./dom.js";
import { act } from "./feed.js";

/** Say something, for eyes and screen readers; the line goes after a while. */
let goes = 0;
export function say(text, bad = false) {
  const said = $("said");
  put(said, text);
  said.className = bad ? "said shown bad" : "said shown";
  clearTimeout(goes);
  goes = setTimeout(() => {
    said.className = "said";
  }, 8000);
}

/** Ask whether it is meant; what is asked is a question, and the button says what happens. */
function sure(question, what) {
  return new Promise((done) => {
    const dialog = $("sure");
    const close = (answer) => {
      dialog.close();
      done(answer);
    };
    dialog.replaceChildren(
      h("h2", { id: "sure-title" }, question),
      h("div", { class: "buttons" },
        h("button", { type: "button", class: "grave", onclick: () => close(true) }, what),
        h("button", { type: "button", autofocus: true, onclick: () => close(false) }, "Leave it")),
    );
    dialog.oncancel = () => done(false);
    dialog.showModal();
  });
}

/** A button that has something done.

  ask: the question that comes first, if it is to.
  then: what to do afterwards.
*/
export function deed(name, order, { ask = "", grave = false, then = null } = {}) {
  const button = h("button", { type: "button", class: grave ? "grave" : "", onclick: carryOut }, name);
  async function carryOut() {
    if (ask && !(await sure(ask, name))) return;
    button.setAttribute("aria-busy", "true");
    try {
      const { lines } = await act(order);
      say(lines.join("; "));
      if (then) await then();
    } catch (error) {
      say(error.message, true);
    } finally {
      button.removeAttribute("aria-busy");
    }
  }
  return button;
}
