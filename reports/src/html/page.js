
"use strict";
(() => {
  const list = document.getElementById("list");
  const byId = (id) => document.getElementById(id);
  const format = (bytes) => {
    const units = ["B", "KiB", "MiB", "GiB"];
    let unit = 0;
    while (bytes >= (unit === 0 ? 1023.5 : 1023.95) && unit + 1 < units.length) { bytes /= 1024; unit += 1; }
    return (unit === 0 ? String(Math.round(bytes * 10) / 10) : bytes.toFixed(1)) + " " + units[unit];
  };

  // A body stays a line of text until its test is opened.
  const rows = list ? Array.from(list.children) : [];
  const waits = (test) => !test.querySelector(":scope > .body");
  const lineOf = new Map(rows.filter(waits).map((test, line) => [test, line]));
  let lines;
  const unpack = (test) => {
    if (!waits(test)) return;
    lines ||= byId("bodies").textContent.split("\n");
    const body = document.createElement("div");
    body.className = "body";
    body.innerHTML = lines[lineOf.get(test)];
    test.append(body);
  };

  if (list) {
    const tests = rows.map((element, place) => ({
      element, place,
      verdict: element.dataset.v, suite: element.dataset.suite,
      bytes: Number(element.dataset.b), time: Number(element.dataset.t),
      name: element.querySelector(".name").textContent,
      text: (element.querySelector("summary").textContent + " " + (element.dataset.q || "")).toLowerCase(),
    }));
    const orders = {
      worst: (a, b) => a.place - b.place,
      bytes: (a, b) => b.bytes - a.bytes || a.place - b.place,
      time: (a, b) => b.time - a.time || a.place - b.place,
      name: (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.place - b.place),
    };
    const [query, verdict, suite, sort, count] = ["q", "verdict", "suite", "sort", "count"].map(byId);
    const filter = () => {
      const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const test of tests) {
        const show = (!verdict.value || test.verdict === verdict.value)
          && (!suite || !suite.value || test.suite === suite.value)
          && words.every((word) => test.text.includes(word));
        test.element.hidden = !show;
        shown += show;
      }
      count.textContent = shown === tests.length ? `${shown} tests` : `${shown} of ${tests.length} tests`;
    };
    const arrange = () => {
      const sorted = tests.slice().sort(orders[sort.value]);
      list.append(...sorted.map((test) => test.element));
    };
    let waiting = 0;
    query.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, 80); });
    verdict.addEventListener("change", filter);
    if (suite) suite.addEventListener("change", filter);
    sort.addEventListener("change", arrange);
    byId("tools").addEventListener("submit", (event) => { event.preventDefault(); filter(); });
    list.addEventListener("toggle", (event) => {
      if (event.target.open && event.target.classList.contains("test")) unpack(event.target);
    }, true);
    const follow = () => {
      let name = location.hash.slice(1);
      try { name = decodeURIComponent(name); } catch { /* as it is written */ }
      const test = name && byId(name);
      if (!test || !test.classList.contains("test")) return;
      test.hidden = false;
      unpack(test);
      test.open = true;
      test.scrollIntoView();
      test.querySelector("summary").focus({ preventScroll: true });
    };
    addEventListener("hashchange", follow);
    // After the browser has gone there itself, which would take the focus away again.
    addEventListener("load", follow);
  }

  const data = byId("icicle-data");
  if (data) {
    const ROW = 22, NARROWEST = 0.15;
    const { frames, stacks } = JSON.parse(data.textContent);
    const box = byId("icicle"), kind = byId("icicle-kind");
    const grow = (parent, frame, java) => {
      const key = frame + (java ? "j" : "n");
      let node = parent.below.get(key);
      if (!node) { node = { name: frames[frame], bytes: 0, java, below: new Map(), parent }; parent.below.set(key, node); }
      return node;
    };
    const tree = () => {
      const root = { name: "all", bytes: 0, below: new Map(), parent: null };
      for (const [of, bytes, path] of stacks) {
        if (kind && kind.value && kind.value !== of) continue;
        root.bytes += bytes;
        let node = root;
        for (const frame of path) { node = grow(node, frame, of === "j"); node.bytes += bytes; }
      }
      return root;
    };
    let root = tree(), focus = root;
    const draw = (keep) => {
      box.textContent = "";
      let deepest = 0;
      const parts = document.createDocumentFragment();
      const put = (node, left, width, depth) => {
        if (width < NARROWEST) return;
        deepest = Math.max(deepest, depth);
        const button = document.createElement("button");
        const share = (100 * node.bytes / root.bytes).toFixed(1);
        button.type = "button";
        button.textContent = node.name;
        button.title = `${node.name}: ${format(node.bytes)}, ${share} %`;
        button.setAttribute("aria-label", button.title);
        button.className = node === root ? "all" : node.java ? "j" : "n";
        button.style.left = left + "%";
        button.style.width = width + "%";
        button.style.top = depth * ROW + "px";
        button.tabIndex = node === focus ? 0 : -1;
        button.node = node;
        node.button = button;
        parts.append(button);
      };
      const descend = (node, left, width, depth) => {
        const all = Array.from(node.below.values()).sort((a, b) => b.bytes - a.bytes);
        let at = left;
        for (const child of all) {
          const part = width * child.bytes / node.bytes;
          put(child, at, part, depth);
          if (part >= NARROWEST) descend(child, at, part, depth + 1);
          at += part;
        }
      };
      const above = [];
      for (let node = focus; node; node = node.parent) above.unshift(node);
      above.forEach((node, depth) => put(node, 0, 100, depth));
      descend(focus, 0, 100, above.length);
      box.append(parts);
      box.style.height = (deepest + 1) * ROW + 2 + "px";
      if (keep) focus.button.focus();
    };
    const go = (to) => {
      if (!to || !to.button || !to.button.isConnected) return;
      box.querySelectorAll("button[tabindex='0']").forEach((button) => { button.tabIndex = -1; });
      to.button.tabIndex = 0;
      to.button.focus();
    };
    const beside = (node, step) => {
      if (!node.parent) return null;
      const all = Array.from(node.parent.below.values()).sort((a, b) => b.bytes - a.bytes);
      return all[all.indexOf(node) + step];
    };
    box.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) { focus = button.node; draw(true); }
    });
    box.addEventListener("keydown", (event) => {
      const node = event.target.node;
      if (!node) return;
      const moves = {
        ArrowDown: () => go(Array.from(node.below.values()).sort((a, b) => b.bytes - a.bytes)[0]),
        ArrowUp: () => go(node.parent),
        ArrowLeft: () => go(beside(node, -1)),
        ArrowRight: () => go(beside(node, 1)),
        Escape: () => { focus = focus.parent || root; draw(true); },
      };
      const move = moves[event.key];
      if (move) { event.preventDefault(); move(); }
    });
    if (kind) kind.addEventListener("change", () => { root = tree(); focus = root; draw(false); });
    draw(false);
  }
})();
