
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

  document.documentElement.classList.add("js");

  // What is copied is the command that stands before the button.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    const command = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(command.textContent);
      button.textContent = "copied";
    } catch {
      // Not allowed where the page was not loaded safely: marked, it can be copied by hand.
      getSelection().selectAllChildren(command);
      button.textContent = document.execCommand("copy") ? "copied" : "marked";
    }
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  });

  // A body stays a line of text until its test is opened.
  const rows = list ? Array.from(list.children) : [];
  const waits = (test) => !test.querySelector(":scope > .body");
  const lineOf = new Map(rows.filter(waits).map((test, line) => [test, line]));
  const linesOf = (id) => byId(id).textContent.split("\n").slice(0, -1);
  let lines;
  const unpack = (test) => {
    if (!waits(test)) return;
    const body = document.createElement("div");
    body.className = "body";
    if (test.clean) {
      const { id, time, suite } = test.clean;
      body.innerHTML = `<p class=facts>passed in ${time} ms · <a href="#${id}">link to this test</a></p>` + suite.body;
    } else {
      lines ||= linesOf("bodies");
      body.innerHTML = lines[lineOf.get(test)];
    }
    test.append(body);
  };

  if (list) {
    const tests = rows.map((element, place) => ({
      element, place, id: element.id,
      verdict: element.dataset.v, suite: element.dataset.suite,
      bytes: Number(element.dataset.b), time: Number(element.dataset.t),
      name: element.querySelector(".name").textContent,
      text: (element.querySelector("summary").textContent + " " + (element.dataset.q || "")).toLowerCase(),
    }));
    // Tests that left nothing are lines too, and become rows when they are looked at.
    const plain = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": "\"", "&#39;": "'" };
    const decoded = (text) => text.replace(/&(?:amp|lt|gt|quot|#39);/g, (entity) => plain[entity]);
    const suites = linesOf("clean-suites").map((line) => {
      const [name, body] = line.split("\t");
      return { name: decoded(name), body };
    });
    for (const line of linesOf("clean")) {
      const [number, time, test, anchor] = line.split("\t");
      const suite = suites[number], name = `${suite.name}::${decoded(test)}`;
      const id = anchor || "t:" + name.replace(/[^A-Za-z0-9._:-]/gu, "_");
      tests.push({
        element: null, clean: { id, time, suite }, place: tests.length, id,
        verdict: "pass", suite: suite.name, bytes: 0, time: Number(time) / 1000, name, text: "pass " + name.toLowerCase(),
      });
    }
    const STEP = 200;
    let limit = STEP, shownClean = [];
    const rowOf = (test) => {
      if (!test.element) {
        const row = document.createElement("details");
        row.className = "test";
        row.id = test.id;
        row.innerHTML = "<summary><span class=\"badge pass\">PASS</span> <span class=name></span></summary>";
        row.querySelector(".name").textContent = test.name;
        Object.assign(row.dataset, { v: "pass", suite: test.suite, b: 0, t: test.time });
        row.clean = test.clean;
        test.element = row;
      }
      return test.element;
    };
    const orders = {
      worst: (a, b) => a.place - b.place,
      bytes: (a, b) => b.bytes - a.bytes || a.place - b.place,
      time: (a, b) => b.time - a.time || a.place - b.place,
      name: (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.place - b.place),
    };
    const [query, verdict, suite, sort, count, more] = ["q", "verdict", "suite", "sort", "count", "more"].map(byId);
    let sorted = tests;
    const arrange = () => {
      const shown = new Set(shownClean);
      list.append(...sorted.filter((test) => !test.clean || shown.has(test)).map(rowOf));
    };
    const filter = (keep) => {
      const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      const clean = [];
      for (const test of sorted) {
        const show = (!verdict.value || test.verdict === verdict.value)
          && (!suite || !suite.value || test.suite === suite.value)
          && words.every((word) => test.text.includes(word));
        shown += show;
        if (!test.clean) test.element.hidden = !show;
        else if (show) clean.push(test);
      }
      const hidden = clean.length - limit;
      const now = clean.slice(0, limit);
      if (keep && !now.includes(keep)) now.push(keep);
      if (now.length !== shownClean.length || now.some((test, index) => test !== shownClean[index])) {
        const stays = new Set(now);
        for (const test of shownClean) if (!stays.has(test)) test.element.remove();
        shownClean = now;
        arrange();
      }
      more.hidden = hidden <= 0;
      more.textContent = hidden > 0 ? `show ${Math.min(hidden, STEP)} more of ${hidden} that passed` : "";
      count.textContent = shown === tests.length ? `${shown} tests` : `${shown} of ${tests.length} tests`;
    };
    const reorder = () => { sorted = tests.slice().sort(orders[sort.value]); limit = STEP; filter(); arrange(); };
    // The address has what is chosen, so that it can be passed on.
    const chosen = [["q", query], ["verdict", verdict], ["suite", suite], ["sort", sort]].filter(([, field]) => field);
    const remember = () => {
      const words = new URLSearchParams();
      for (const [name, field] of chosen) if (field.value && field.value !== "worst") words.set(name, field.value);
      const address = words.size ? "#" + words : location.pathname + location.search;
      try { history.replaceState(null, "", address); } catch { /* Where the page lies may forbid it. */ }
    };
    let waiting = 0;
    const again = () => { limit = STEP; filter(); remember(); };
    query.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(again, 80); });
    verdict.addEventListener("change", again);
    if (suite) suite.addEventListener("change", again);
    sort.addEventListener("change", () => { reorder(); remember(); });
    more.addEventListener("click", () => { limit += STEP; filter(); });
    byId("tools").addEventListener("submit", (event) => { event.preventDefault(); again(); });
    list.addEventListener("toggle", (event) => {
      if (event.target.open && event.target.classList.contains("test")) unpack(event.target);
    }, true);
    const show = (test, leak) => {
      if (test.clean && !shownClean.includes(test)) filter(test);
      const row = test.element;
      row.hidden = false;
      unpack(row);
      row.open = true;
      const group = leak && Array.from(row.querySelectorAll("[data-leak]")).find((part) => part.dataset.leak === leak);
      (group || row).scrollIntoView();
      row.querySelector("summary").focus({ preventScroll: true });
    };
    const follow = () => {
      let name = location.hash.slice(1);
      try { name = decodeURIComponent(name); } catch { /* as it is written */ }
      if (name.startsWith("t:")) {
        const test = tests.find((test) => test.id === name);
        if (test) show(test);
      } else if (name.startsWith("l:")) {
        const leak = name.slice(2);
        const test = tests.find((test) => !test.clean && test.text.includes(leak.toLowerCase()));
        if (test) show(test, leak);
      } else if (name.includes("=")) {
        const words = new URLSearchParams(location.hash.slice(1));
        for (const [word, field] of chosen) {
          const value = words.get(word) ?? (word === "sort" ? "worst" : "");
          if (field === query || Array.from(field.options).some((option) => option.value === value)) field.value = value;
        }
        reorder();
      }
    };
    filter();
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
