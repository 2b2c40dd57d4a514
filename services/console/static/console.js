// SPDX-License-Identifier: Apache-2.0
// Makes pages live. Every page can be read, and everything can be done, without it.
"use strict";

(() => {
  const pause = 1000; // least time between two reads of a page, ms
  const again = 15000; // when a refused stream is tried again, ms

  // --- Live pages ---------------------------------------------------------

  let source = null;
  let timer = 0;
  let readAt = 0;
  let reading = false;
  let stale = false;

  // Nothing is replaced below a finger or a pressed button: its click would be lost.
  let pressed = false;
  const waiting = [];
  const free = () => new Promise((go) => { if (pressed) waiting.push(go); else go(); });
  const lift = () => setTimeout(() => { // behind the click
    pressed = false;
    for (const go of waiting.splice(0)) go();
  });
  addEventListener("pointerdown", () => { pressed = true; }, true);
  addEventListener("pointerup", lift, true);
  addEventListener("pointercancel", lift, true);

  const sign = (on, text) => {
    const el = document.getElementById("live");
    if (!el || el.textContent === text) return;
    el.className = "live " + (on ? "on" : "off");
    el.textContent = text;
  };

  const parse = (html) => new DOMParser().parseFromString(html, "text/html");

  // Puts new content into an element, and keeps what people have opened and where they are.
  const replace = (old, fresh) => {
    if (old.innerHTML === fresh.innerHTML) return;
    const open = [...old.querySelectorAll("details[open]")].map(keyOf);
    const active = old.contains(document.activeElement) ? keyOf(document.activeElement) : "";
    old.replaceChildren(...[...fresh.childNodes].map((n) => document.adoptNode(n)));
    for (const d of old.querySelectorAll("details")) if (open.includes(keyOf(d))) d.open = true;
    if (active) [...old.querySelectorAll("a, button, summary, input, select, [tabindex]")].find((el) => keyOf(el) === active)?.focus({ preventScroll: true });
    reveal(old);
  };

  // Names an element in a way that holds when its surroundings are made anew.
  const keyOf = (el) => el.id || el.tagName + (el.closest("[data-job]")?.dataset.job || "") + (el.getAttribute("href") || "") +
    (el.tagName === "SUMMARY" ? keyOf(el.parentElement) : "");

  const announce = () => {
    const text = document.querySelector("[data-announce]")?.dataset.announce;
    const el = document.getElementById("announce");
    if (el && text && el.textContent !== text) el.textContent = text;
  };

  // Reads the page again and takes over what has changed.
  const read = async () => {
    if (reading) { stale = true; return; }
    const wait = readAt + pause - Date.now();
    if (wait > 0) {
      timer ||= setTimeout(() => { timer = 0; read(); }, wait);
      return;
    }
    reading = true;
    readAt = Date.now();
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (!answer.ok) {
        sign(false, answer.status === 404 ? "Not kept any more" : "Cannot be read now");
        if (answer.status === 404) source?.close();
        return;
      }
      const page = parse(await answer.text());
      await free();
      const whole = !page.querySelector("[data-live-region]") || document.getElementById("elevations");
      for (const old of whole ? [document.getElementById("main")] : document.querySelectorAll("[data-live-region]")) {
        const fresh = page.getElementById(old.id);
        if (!fresh) continue;
        if ("announce" in old.dataset) old.dataset.announce = fresh.dataset.announce;
        replace(old, fresh);
      }
      announce();
      if (page.body.dataset.live && !source) document.body.dataset.live = page.body.dataset.live;
    } catch {
      sign(false, "Reconnecting");
    } finally {
      reading = false;
      if (stale) { stale = false; read(); }
    }
  };

  const patch = async (list) => {
    await free();
    for (const { id, html } of list) {
      const el = document.getElementById(id);
      if (el) {
        const host = document.createElement(el.tagName);
        const template = document.createElement("template");
        template.innerHTML = html;
        host.append(template.content);
        replace(el, host);
      } else if (/^[cr]-/.test(id)) {
        read(); // something new
      }
    }
  };

  const listen = () => {
    const address = document.body.dataset.live;
    if (!address || !window.EventSource) return;
    source = new EventSource(address);
    source.onopen = () => sign(true, "Live");
    source.onerror = () => {
      sign(false, "Reconnecting");
      if (source.readyState === EventSource.CLOSED) { // refused: the browser does not try again by itself
        source = null;
        setTimeout(() => read().finally(listen), again);
      }
    };
    source.addEventListener("patch", (e) => patch(JSON.parse(e.data)));
    source.addEventListener("changed", () => read());
    source.addEventListener("reload", () => {
      source.close();
      source = null;
      setTimeout(() => read().finally(listen), pause);
    });
  };

  // --- Dialogs ------------------------------------------------------------

  // A link to a page that asks is shown as a dialog; without this script it is the page.
  const ask = async (link) => {
    let form;
    try {
      const answer = await fetch(link.href);
      form = parse(await answer.text()).getElementById("confirm");
    } catch { /* the page itself tells */ }
    if (!form) { location.href = link.href; return; }
    const dialog = document.createElement("dialog");
    dialog.setAttribute("aria-labelledby", "confirm-title");
    dialog.append(document.adoptNode(form));
    document.body.append(dialog);
    dialog.addEventListener("close", () => { dialog.remove(); document.getElementById(link.id)?.focus(); });
    dialog.addEventListener("click", (e) => {
      if (e.target.closest("[data-close]")) { e.preventDefault(); dialog.close(); }
    });
    dialog.showModal();
  };

  // --- The rest -----------------------------------------------------------

  const reveal = (root) => {
    if (navigator.clipboard) for (const b of root.querySelectorAll("[data-copy][hidden]")) b.hidden = false;
  };

  document.addEventListener("click", async (e) => {
    const link = e.target.closest("a[data-dialog]");
    if (link && !e.ctrlKey && !e.metaKey && !e.shiftKey && e.button === 0) {
      e.preventDefault();
      ask(link);
      return;
    }
    const copy = e.target.closest("[data-copy]");
    if (copy) {
      await navigator.clipboard.writeText(copy.dataset.copy);
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    }
  });

  // What was done is told once, not again when the page is loaded anew.
  const here = new URL(location.href);
  if (here.searchParams.has("done")) {
    here.searchParams.delete("done");
    history.replaceState(null, "", here);
  }
  reveal(document);
  announce();
  listen();
  addEventListener("pagehide", () => source?.close());
  addEventListener("pageshow", (e) => { if (e.persisted) read().finally(listen); });
})();
