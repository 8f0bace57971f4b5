// Opens a page in headless Chromium with the DevTools protocol on a pipe; no package is needed.
//
//   node browser.mjs CHROMIUM PAGE FOLDER [AXE]     everything a person sees and does
//   node browser.mjs CHROMIUM PAGE --open           only how long it takes to open and, where it has a search, to search
//   node browser.mjs CHROMIUM PAGE --clean          only the list of tests that left nothing
//   node browser.mjs CHROMIUM PAGE --icicle         only the icicle, native, Java and both
//   node browser.mjs CHROMIUM PAGE --signs-in NAME PASSWORD   a page of a server that only members see
//   node browser.mjs CHROMIUM --served FOLDER AXE ADDRESS…   pages of a server: screenshots and what axe finds
//
// Writes screenshots (NAME-WIDTH-SCHEME.png, and readme.png) into FOLDER and prints one JSON object: the page's console
// output, what axe found, how long the page took to open, and the results of searching, sorting, opening and following
// an address. `main_thread` is CPU time of the page's main thread in seconds, which hardly depends on the load of the
// machine.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const served = process.argv[3] === "--served";
const [chromium, page, folder, axe] = served ? [process.argv[2], ...process.argv.slice(6, 7), ...process.argv.slice(4, 6)] : process.argv.slice(2);
const signs = folder === "--signs-in";
const url = served || signs ? page : pathToFileURL(resolve(page)).href;
const profile = mkdtempSync(join(tmpdir(), "memgate-browser-"));
const browser = spawn(
  chromium,
  ["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--hide-scrollbars", "--force-device-scale-factor=1", `--user-data-dir=${profile}`, "about:blank"],
  { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] },
);
const [input, output] = [browser.stdio[3], browser.stdio[4]];

let last = 0;
const waiting = new Map();
const listeners = new Map();
let rest = "";
output.setEncoding("utf8");
output.on("data", (chunk) => {
  const parts = (rest + chunk).split("\0");
  rest = parts.pop();
  for (const part of parts) {
    const message = JSON.parse(part);
    if (message.id) {
      const { done, failed } = waiting.get(message.id);
      waiting.delete(message.id);
      if (message.error) failed(new Error(message.error.message)); else done(message.result);
    } else {
      (listeners.get(message.method) || []).forEach((listen) => listen(message.params));
    }
  }
});
browser.on("exit", (code) => {
  for (const { failed } of waiting.values()) failed(new Error(`chromium ended with ${code}`));
});
let session;
const send = (method, params = {}) => new Promise((done, failed) => {
  last += 1;
  waiting.set(last, { done, failed });
  input.write(JSON.stringify({ id: last, method, params, sessionId: session }) + "\0");
});
const on = (method, listen) => listeners.set(method, [...(listeners.get(method) || []), listen]);
const once = (method) => new Promise((done) => {
  const listen = (params) => { listeners.set(method, listeners.get(method).filter((l) => l !== listen)); done(params); };
  on(method, listen);
});
const evaluate = async (expression) => {
  const { result, exceptionDetails } = await send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description || exceptionDetails.text);
  return result.value;
};
const open = async (address) => {
  const loaded = once("Page.loadEventFired");
  const began = performance.now();
  await send("Page.navigate", { url: "about:blank" });
  await loaded;
  const again = once("Page.loadEventFired");
  const start = performance.now();
  await send("Page.navigate", { url: address });
  await again;
  // Drawn, not only parsed.
  await evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
  return { opened_ms: performance.now() - start, began };
};
const key = async (name) => {
  for (const type of ["keyDown", "keyUp"]) await send("Input.dispatchKeyEvent", { type, key: name, code: name, windowsVirtualKeyCode: { Enter: 13, Tab: 9, ArrowDown: 40, Escape: 27 }[name], text: name === "Enter" && type === "keyDown" ? "\r" : undefined });
};

const found = { console: [], views: [], axe: [] };
try {
  const { targetInfos } = await send("Target.getTargets");
  const { targetId } = targetInfos.find((target) => target.type === "page");
  session = (await send("Target.attachToTarget", { targetId, flatten: true })).sessionId;
  for (const domain of ["Page", "Runtime", "Log", "Network"]) await send(`${domain}.enable`);
  on("Runtime.exceptionThrown", ({ exceptionDetails }) => found.console.push(exceptionDetails.exception?.description || exceptionDetails.text));
  on("Runtime.consoleAPICalled", ({ type, args }) => { if (type === "error" || type === "warning") found.console.push(args.map((arg) => arg.value).join(" ")); });
  on("Log.entryAdded", ({ entry }) => { if (entry.level === "error") found.console.push(entry.text); });
  const requests = [];
  // A server's pages have separate style and icon files, and one page listens to the server's events.
  on("Network.requestWillBeSent", ({ request }) => { if (signs && request.url.startsWith(new URL("/", url).href)) return; if (served && /^\/(static|api)\//.test(new URL(request.url).pathname)) return; if (![url, ...process.argv.slice(6), "about:blank"].includes(request.url.split("#")[0])) requests.push(request.url); });

  const shown = "[...document.querySelectorAll('.test')].filter((t) => !t.hidden)";
  const names = `${shown}.map((t) => t.querySelector('.name').textContent)`;
  const set = (id, value) => `{ const e = document.getElementById('${id}'); e.value = ${JSON.stringify(value)}; e.dispatchEvent(new Event(e.tagName === 'SELECT' ? 'change' : 'input', { bubbles: true })); }`;
  // Each served page at two widths, in light and dark mode: a screenshot, what axe finds, load time, bytes sent.
  const pages = async () => {
    for (const address of process.argv.slice(6)) {
      const name = new URL(address).pathname.replace(/[^A-Za-z0-9]+/g, "-").replace(/^-|-$/g, "");
      for (const width of [1280, 400]) {
        for (const scheme of ["light", "dark"]) {
          await send("Emulation.setDeviceMetricsOverride", { width, height: 900, deviceScaleFactor: 1, mobile: width < 500 });
          await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
          const { opened_ms } = await open(address);
          const seen = await evaluate(`({
            wider: document.documentElement.scrollWidth - innerWidth,
            bytes: performance.getEntriesByType("navigation")[0].decodedBodySize,
            scripts: document.scripts.length,
            heading: document.querySelector("h1")?.textContent,
          })`);
          const height = Math.min(2600, await evaluate("document.documentElement.scrollHeight"));
          const { data } = await send("Page.captureScreenshot", { format: "png", captureBeyondViewport: true, clip: { x: 0, y: 0, width, height, scale: 1 } });
          writeFileSync(join(folder, `${name}-${width}-${scheme}.png`), Buffer.from(data, "base64"));
          if (axe && existsSync(axe)) {
            await evaluate(readFileSync(axe, "utf8") + "; 1");
            found.axe.push(...(await violations()).map((violation) => `${name} ${width} ${scheme}: ${violation}`));
          }
          found.views.push({ name, width, scheme, opened_ms, ...seen });
        }
      }
    }
    found.axe_ran = Boolean(axe && existsSync(axe));
  };
  const violations = () => evaluate(`axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations.map((v) =>
    v.id + ": " + v.help + " (" + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + " " + (n.any[0]?.message || n.none[0]?.message || "")).join(" | ") + ")"))`);
  const everything = async () => {
    for (const width of [1280, 400]) {
      for (const scheme of ["light", "dark"]) {
        await send("Emulation.setDeviceMetricsOverride", { width, height: 900, deviceScaleFactor: 1, mobile: width < 500 });
        await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
        const { opened_ms } = await open(url);
        const seen = await evaluate(`({
          wider: document.documentElement.scrollWidth - innerWidth,
          charts: [...document.querySelectorAll(".test[open] svg.chart")].filter((c) => c.getBoundingClientRect().height > 50).length,
          suite_charts: document.querySelectorAll("[aria-labelledby=memory-h] svg.chart").length,
          icicle: document.querySelectorAll("#icicle button").length,
          background: getComputedStyle(document.body).backgroundColor,
        })`);
        const picture = async (name, y, height) => {
          const clip = { x: 0, y, width, height, scale: 1 };
          const { data } = await send("Page.captureScreenshot", { format: "png", captureBeyondViewport: true, clip });
          writeFileSync(join(folder, name), Buffer.from(data, "base64"));
        };
        const name = `report-${width}-${scheme}.png`;
        await picture(name, 0, Math.min(2600, await evaluate("document.documentElement.scrollHeight")));
        await picture(`memory-${width}-${scheme}.png`, await evaluate("(document.getElementById('memory-h') || document.body).getBoundingClientRect().top + scrollY"), 1000);
        await picture(`stacks-${width}-${scheme}.png`, await evaluate("(document.getElementById('stacks') || document.body).getBoundingClientRect().top + scrollY"), 1000);
        if (width === 1280 && scheme === "light") {
          // A picture must not show the folder of this checkout.
          await evaluate(`document.querySelectorAll(".command").forEach((c) => { c.textContent = c.textContent.replace(/ \\/\\S*\\//, " build/"); })`);
          await evaluate(`document.querySelectorAll(".origin dd").forEach((d) => { d.textContent = d.textContent.replace(/^([0-9a-f]{12}) on .*/, "$1 on main").replace(/^[^,]*, (?=.* processors?$)/, ""); })`);
          await picture("readme.png", 0, 1400);
        }
        if (axe && existsSync(axe)) {
          await evaluate("document.querySelectorAll('details').forEach((d, i) => { if (i < 40) d.open = true; })");
          await evaluate(readFileSync(axe, "utf8") + "; 1");
          found.axe.push(...(await violations()).map((violation) => `${width} ${scheme}: ${violation}`));
        }
        found.views.push({ width, scheme, opened_ms, picture: name, ...seen });
      }
    }
    found.axe_ran = Boolean(axe && existsSync(axe));

    await send("Emulation.setDeviceMetricsOverride", { width: 1280, height: 900, deviceScaleFactor: 1, mobile: false });
    await open(url);
    found.tests = await evaluate(names);
    // Search, as a person types it.
    const word = (found.tests[0] || "").split(/[.:]+/).pop();
    await evaluate("document.getElementById('q').focus()");
    for (const text of word) await send("Input.insertText", { text });
    await evaluate("new Promise((done) => setTimeout(done, 200))");
    found.search = { word, names: await evaluate(names), count: await evaluate("document.getElementById('count').textContent") };
    await evaluate(set("q", "") + "; new Promise((done) => setTimeout(done, 200))");
    await evaluate(set("sort", "name"));
    found.by_name = await evaluate(names);
    await evaluate(set("sort", "bytes"));
    found.by_bytes = await evaluate(`${shown}.map((t) => Number(t.dataset.b))`);
    await evaluate(set("verdict", "fail"));
    found.failing = await evaluate(`${shown}.map((t) => t.dataset.v)`);
    await evaluate(set("verdict", ""));
    // The address of a test whose body is not rendered yet.
    const anchor = await evaluate("(document.querySelector('.test:not(:has(> .body))') || document.querySelector('.test')).id");
    await open("about:blank");
    await open(`${url}#${encodeURIComponent(anchor)}`);
    found.deep_link = await evaluate(`(() => { const t = document.getElementById(${JSON.stringify(anchor)}); const r = t.getBoundingClientRect();
      return { id: t.id, open: t.open, body: [...t.querySelectorAll(':scope > .body .facts a')].some((a) => a.getAttribute('href') === '#' + t.id), in_view: r.top < innerHeight && r.bottom > 0, focus: document.activeElement === t.querySelector('summary') }; })()`);
    // The address of a leak opens its test; the address of a search shows its results again.
    await open(url);
    found.leak = await evaluate("[...document.querySelectorAll('.test [data-leak]')].pop().dataset.leak");
    await open("about:blank");
    await open(`${url}#l:${encodeURIComponent(found.leak)}`);
    found.leak_link = await evaluate(`(() => { const g = document.querySelector('.test[open] [data-leak="${found.leak}"]'); const r = g && g.getBoundingClientRect(); return Boolean(r) && r.top < innerHeight && r.bottom > 0; })()`);
    await open(url);
    await evaluate(set("verdict", "fail") + set("q", word) + "; new Promise((done) => setTimeout(done, 200))");
    found.address = await evaluate("location.hash");
    await open("about:blank");
    await open(url + found.address);
    found.address_found = await evaluate(names);
    // A real click, which copying requires.
    await open(url);
    await evaluate("document.querySelector('.test[open] button.copy').scrollIntoView({ block: 'center' })");
    const at = await evaluate("(() => { const r = document.querySelector('.test[open] button.copy').getBoundingClientRect(); return { x: r.x + r.width / 2, y: r.y + r.height / 2 }; })()");
    for (const type of ["mousePressed", "mouseReleased"]) await send("Input.dispatchMouseEvent", { type, ...at, button: "left", clickCount: 1 });
    await evaluate("new Promise((done) => setTimeout(done, 200))");
    found.copy = await evaluate("(() => { const b = document.querySelector('.test[open] button.copy'); return { said: b.textContent, command: b.previousElementSibling.textContent }; })()");
    // The keyboard alone: a test opens with Enter, the icicle moves with arrows.
    await open(url);
    found.keyboard = await evaluate("(() => { const t = document.querySelector('.test:not([open])'); if (!t) return null; t.querySelector('summary').focus(); return t.id; })()");
    if (found.keyboard) {
      await key("Enter");
      found.keyboard = await evaluate(`(() => { const t = document.getElementById(${JSON.stringify(found.keyboard)}); return t.open && Boolean(t.querySelector('.body')); })()`);
    }
    found.icicle = await evaluate("(() => { const b = document.querySelector('#icicle button'); if (!b) return null; b.focus(); return b.getAttribute('aria-label'); })()");
    if (found.icicle) {
      await key("ArrowDown");
      found.icicle_down = await evaluate("document.activeElement.getAttribute('aria-label')");
      await key("Enter");
      found.icicle_zoomed = await evaluate("document.activeElement.style.width");
    }
  };
  const opening = async () => {
    await send("Emulation.setDeviceMetricsOverride", { width: 1280, height: 900, deviceScaleFactor: 1, mobile: false });
    await send("Performance.enable", { timeDomain: "threadTicks" });
    const spent = async () => (await send("Performance.getMetrics")).metrics.find((metric) => metric.name === "TaskDuration").value;
    const measured = async (work) => {
      const [began, before] = [performance.now(), await spent()];
      await work();
      return { seconds: (performance.now() - began) / 1000, main_thread: (await spent()) - before };
    };
    // The first page includes the browser's own start.
    await open("about:blank");
    found.open = await measured(() => open(url));
    found.tests = await evaluate("document.querySelectorAll('.test').length");
    if (!await evaluate("Boolean(document.getElementById('q'))")) return;
    found.search = await measured(() => evaluate(set("q", "n1-") + "; new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 100))"));
    found.found = await evaluate(`${shown}.length`);
  };
  const clean = async () => {
    await open(url);
    const rows = "document.querySelectorAll('.test').length";
    found.shown = await evaluate(rows);
    found.more = await evaluate("document.getElementById('more').textContent");
    await evaluate("document.getElementById('more').click()");
    found.after_more = await evaluate(rows);
    await evaluate(set("q", "test4321/<b>") + "; new Promise((done) => setTimeout(done, 200))");
    found.searched = await evaluate(names);
    found.count = await evaluate("document.getElementById('count').textContent");
    await evaluate(set("q", "") + "; new Promise((done) => setTimeout(done, 200))");
    await evaluate(set("sort", "name"));
    found.by_name = await evaluate(names);
    await open("about:blank");
    await open(`${url}#t:leaks::Many.test3333__b_`);
    found.deep_link = await evaluate("(() => { const t = document.querySelector('.test[open]:has(> .body .facts a[href*=test3333])'); return t && { open: t.open, name: t.querySelector('.name').textContent, body: t.querySelector('.body').textContent }; })()");
  };
  const icicle = async () => {
    await open(url);
    const seen = "({ all: document.querySelector('#icicle .all').getAttribute('aria-label'), native: document.querySelectorAll('#icicle .n').length, java: document.querySelectorAll('#icicle .j').length })";
    for (const [name, value] of [["merged", ""], ["native", "n"], ["java", "j"]]) {
      await evaluate(set("icicle-kind", value));
      found[name] = await evaluate(seen);
    }
  };
  // Like a person: from a hidden page to the form, to the page, and out again.
  const signsIn = async () => {
    const [name, password] = process.argv.slice(5);
    const heading = "document.querySelector('h1').textContent";
    const follow = async (click) => {
      const loaded = once("Page.loadEventFired");
      await evaluate(`${click}; 1`);
      await loaded;
      return { at: await evaluate("location.pathname"), heading: await evaluate(heading) };
    };
    const sign = (word) => follow(`document.querySelector('[name=name]').value = ${JSON.stringify(name)};
      document.querySelector('[name=password]').value = ${JSON.stringify(word)}; document.querySelector('button').click()`);
    await open(url);
    found.before = await evaluate(heading);
    found.form = await follow("document.querySelector('a[href^=\"/login\"]').click()");
    found.wrong = { ...await sign("not the password"), said: await evaluate("document.querySelector('[role=alert]')?.textContent") };
    found.inside = await sign(password);
    found.script_sees = await evaluate("document.cookie");
    await open(new URL("/", url).href);
    found.out = await follow("document.querySelector('form[action=\"/logout\"] button').click()");
    await open(url);
    found.after = await evaluate(heading);
    // Expected answers of the pages themselves.
    found.console = found.console.filter((text) => !/with a status of 40[34]/.test(text));
  };
  await ({ "--signs-in": signsIn, "--open": opening, "--icicle": icicle, "--clean": clean }[folder] || (served ? pages : everything))();
  found.requests = requests;
} catch (error) {
  found.error = String(error.stack || error);
} finally {
  // When asked to end, the browser also ends its helpers, which write to the profile until then.
  const runs = browser.exitCode === null && browser.signalCode === null;
  const ended = new Promise((done) => (runs ? browser.once("exit", done) : done()));
  session = undefined;
  if (runs) send("Browser.close").catch(() => {});
  const late = setTimeout(() => browser.kill("SIGKILL"), 5000);
  await ended;
  clearTimeout(late);
  rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
}
process.stdout.write(JSON.stringify(found, null, 1) + "\n");
