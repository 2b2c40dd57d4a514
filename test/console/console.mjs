// SPDX-License-Identifier: Apache-2.0
// Drives the console in Chromium. The Go test beside it sends one line of JSON to begin with,
// and one after each step that this script reports; whatever is not as it must be ends it.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const hear = async () => {
  const { value, done } = await lines.next();
  if (done) throw new Error("the test has gone");
  return JSON.parse(value);
};
const tell = (step, more = {}) => console.log(JSON.stringify({ step, ...more }));

const set = await hear();
const axe = await readFile(fileURLToPath(import.meta.resolve("axe-core/axe.min.js")), "utf8");
const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: process.getuid() === 0 ? ["--no-sandbox"] : [],
});

// enter returns a browser with the certificate of somebody.
const enter = async (who, more = {}) => {
  const context = await browser.newContext({
    baseURL: set.url,
    viewport: { width: 1360, height: 850 },
    // The server's certificate is verified by playwright, which ends the TLS of the browser, against NODE_EXTRA_CA_CERTS.
    ...(who ? { clientCertificates: [{ origin: set.url, certPath: who.cert, keyPath: who.key }] } : { ignoreHTTPSErrors: true }),
    ...more,
  });
  context.setDefaultTimeout(90_000); // a job that cannot be cut stops when its device is done
  const page = await context.newPage();
  // Nothing may be refused by the content policy, and no script may fail.
  page.on("console", (m) => {
    if (m.type() === "error" && !/Failed to load resource/.test(m.text())) faults.push(m.text());
  });
  page.on("pageerror", (e) => faults.push(String(e)));
  return page;
};
const faults = [];
const sound = () => assert.deepEqual(faults, []);

const operator = { cert: set.cert, key: set.key };
const viewer = { cert: set.viewerCert, key: set.viewerKey };

// accessible runs axe over a page, in the light and in the dark.
const accessible = async (page, name) => {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, {
      runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"],
    }));
    assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html + " " + n.failureSummary).slice(0, 2).join(" | ")}`), [], `${name}, ${colorScheme}`);
  }
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "no-preference" });
};

const shoot = async (page, name, more = {}) => {
  if (set.shots) await page.screenshot({ path: `${set.shots}/console-${name}.png`, animations: "disabled", ...more });
};

// marked fails when the page was loaded anew since mark.
const mark = (page) => page.evaluate(() => { globalThis.sameDocument = true; });
const marked = async (page) => assert.equal(await page.evaluate(() => globalThis.sameDocument), true, "the page was loaded anew");

const cell = (page, node) => page.locator("a.cell", { hasText: node });
const badge = (page) => page.locator("#job-head .badge");

// --- Who has no certificate is told how to get in ------------------------------------------

const stranger = await enter(null);
const answer = await stranger.goto("/");
assert.equal(answer.status(), 401);
assert.match(await stranger.textContent("main"), /openssl pkcs12/);
await stranger.context().close();

// --- Racks ----------------------------------------------------------------------------------

const page = await enter(operator);
await page.goto("/");
assert.equal(await page.title(), "Racks · Rackbus");
const first = page.locator(".rack").first();
assert.equal(await first.locator("h3").textContent(), set.rack);
assert.equal(await first.locator("a.cell").count(), set.nodes);
assert.match(await cell(first, set.idle).textContent(), /: no history/);
await page.locator("#live.on").waitFor();
await mark(page);

// By keyboard: the first stop leads to the content.
await page.keyboard.press("Tab");
assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
await page.keyboard.press("Enter");
assert.equal(await page.evaluate(() => document.activeElement.id), "main");

tell("opened");
const started = await hear();

// The elevation becomes live by itself.
await first.locator("a.cell.s-working .pct").nth(10).waitFor();
await first.locator("a.cell.s-working .pct").filter({ hasText: /[1-9]\d %/ }).nth(8).waitFor();
await marked(page);
await shoot(page, "racks");

// --- A viewer looks and may do nothing --------------------------------------------------------

const guest = await enter(viewer);
await guest.goto(`/jobs/${started.job}`);
assert.match(await guest.textContent(".viewer"), /viewer/);
assert.equal(await guest.locator("a.button").count(), 0, "a viewer is offered nothing");
const refused = await guest.evaluate(async (path) => {
  const r = await fetch(path, { method: "POST", body: new URLSearchParams({ token: "x" }) });
  return r.status;
}, `/jobs/${started.job}/do/cancel`);
assert.equal(refused, 403);
await guest.context().close();

// --- The list and its filter ------------------------------------------------------------------

await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Jobs" }).click();
await page.locator("#jobs").waitFor();
await page.locator("select[name=state]").selectOption("active");
await page.locator("select[name=type]").selectOption("firmware_update");
await page.locator("input[name=rack]").fill(set.rack);
await page.getByRole("button", { name: "Filter" }).click();
await page.waitForURL(/state=active/);
assert.match(page.url(), /type=firmware_update/);
assert.equal(await page.locator("#jobs tbody tr").count(), 1);
const row = page.locator(`#jobs tr[data-job="${started.batch}"]`);
await row.locator("summary").click();
await row.locator("code", { hasText: started.batch }).waitFor();
await page.locator("select[name=type]").selectOption("cold_reboot_sequence");
await page.getByRole("button", { name: "Filter" }).click();
await page.getByText("No job matches.").waitFor();
await page.getByRole("link", { name: "Clear" }).click();
await page.locator("input[name=rack]").fill(set.rack);
await page.getByLabel("jobs of batches, too").check();
await page.getByRole("button", { name: "Filter" }).click();
await page.locator("#jobs tbody tr").nth(15).waitFor();
await shoot(page, "jobs");

// --- A batch, live ------------------------------------------------------------------------------

await page.locator(`#jobs tr[data-job="${started.batch}"] a`, { hasText: started.name }).click();
await page.locator("h1", { hasText: started.name }).waitFor();
await page.locator("#live.on").waitFor();
await mark(page);
// A tray's share moves, and so does the drawing of the whole.
const tray = `#child-table tr[data-job="${started.job}"] .meter span`;
const before = parseInt(await page.locator(tray).textContent(), 10);
await page.waitForFunction(([tray, n]) => parseInt(document.querySelector(tray)?.textContent, 10) > n + 5, [tray, before]);
await marked(page);
assert.match(await page.locator("#announce").textContent(), /The job is running, \d+ percent/);
await shoot(page, "batch");

// --- Cancel one of its jobs without any script --------------------------------------------------

const plain = await enter(operator, { javaScriptEnabled: false });
await plain.goto(`/jobs/${started.batch}`);
assert.equal(await plain.locator("#child-table tbody tr").count(), 17);
await plain.locator(`#child-table tr[data-job="${started.plain}"] a`).first().click();
await plain.locator("#do-cancel").click();
await plain.getByRole("button", { name: "Cancel job" }).click();
await plain.locator(".notice", { hasText: "Asked to stop" }).waitFor();
await plain.context().close();
// --- And another one in a dialog -------------------------------------------------------------------

await page.goto(`/jobs/${started.job}`);
await page.locator("#live.on").waitFor();
await page.locator("#do-cancel").click();
const dialog = page.getByRole("dialog");
await dialog.getByRole("heading", { name: "Cancel this job?" }).waitFor();
await shoot(page, "cancel");
await page.keyboard.press("Escape");
await dialog.waitFor({ state: "detached" });
assert.equal(await page.evaluate(() => document.activeElement.id), "do-cancel", "the focus comes back");
assert.match(await badge(page).textContent(), /running/);
await page.locator("#do-cancel").click();
await dialog.getByLabel("Reason").fill("tray is needed");
await dialog.getByRole("button", { name: "Cancel job" }).click();
await page.locator(".notice", { hasText: "Asked to stop" }).waitFor();
await mark(page);
await page.locator("#job-head .badge", { hasText: /^cancelled$/ }).waitFor();
await marked(page);
assert.equal(await page.locator("#do-cancel").count(), 0, "what has ended cannot be cancelled");

tell("cancelled");

// --- The end is what GetJob tells --------------------------------------------------------------------

const want = await hear();
await page.goto(`/jobs/${started.batch}`);
assert.equal((await badge(page).textContent()).trim(), want.state);
assert.equal((await page.locator("#job-progress .headline").textContent()).trim(), want.description);
for (const [label, n] of Object.entries(want.counts)) {
  assert.equal(Number(await page.locator(`.legend [data-count="${label}"] b`).textContent()), n, label);
}
const rows = await page.locator("#child-table tbody tr").evaluateAll((list) => list.map((tr) => ({
  id: tr.dataset.job,
  node: tr.querySelector("th a").textContent.trim(),
  state: tr.querySelector(".badge").textContent.trim(),
  code: tr.querySelector("td:nth-child(3) code")?.textContent ?? "",
  description: tr.querySelector(".clip").textContent.trim(),
})));
assert.equal(rows.length, Object.keys(want.children).length);
for (const { id, ...shown } of rows) assert.deepEqual(shown, want.children[id], id);
await accessible(page, "batch");

await page.goto(`/jobs/${want.failed}`);
const failure = page.locator("#job-failure");
assert.match(await failure.textContent(), /Update\.1\.0\.TransferFailed/);
assert.match(await failure.textContent(), /Check the flash of the component/);
assert.ok(await page.locator("#job-stages tbody tr").count() > 2);
await accessible(page, "failed job");
await shoot(page, "failure");
await failure.locator("a code").click();
await page.waitForURL(/\/help#/);
await accessible(page, "help");

await page.goto("/jobs?children=1");
await accessible(page, "jobs");
await page.goto("/");
await accessible(page, "racks");
for (const [node, label] of Object.entries(want.nodes)) {
  assert.match(await cell(first, node).textContent(), new RegExp(`: ${label}`), node);
}
assert.equal(await first.locator("a.aside", { hasText: "cancelled" }).count(), 2, "cancelled runs stay visible");
await page.goto(`/racks/${set.rack}`);
assert.equal(await page.locator("tbody tr").count(), set.nodes);
await accessible(page, "rack");
await page.getByRole("link", { name: "compute-0005", exact: true }).click();
assert.match(await page.textContent("#node"), /says nothing about the node/);
await accessible(page, "node");
sound();
tell("compared");

// --- A diagnosis of the failed job, and its evidence ------------------------------------------------------

await page.goto(`/jobs/${want.failed}`);
await page.locator("#do-diagnose").click();
await dialog.getByRole("button", { name: "Diagnose" }).click();
await page.locator(".notice", { hasText: "The diagnosis has been started" }).waitFor();
await page.locator("#job-head .badge", { hasText: /^completed$/ }).waitFor();
await page.goto(`/jobs/${want.failed}`);
await page.locator("#job-diagnostics li a").waitFor();
await page.getByRole("link", { name: "Evidence: get a link" }).click();
await accessible(page, "evidence");
await shoot(page, "evidence", { clip: { x: 0, y: 0, width: 1000, height: 420 } });
const link = await page.locator("a[download]").getAttribute("href");
const bundle = await fetch(link); // without any certificate
assert.equal(bundle.status, 200);
assert.deepEqual([...new Uint8Array(await bundle.arrayBuffer()).slice(0, 2)], [0x1f, 0x8b], "a bundle is a gzip file");
assert.notEqual((await fetch(link.replace(/.$/, (c) => (c === "A" ? "B" : "A")))).status, 200, "a link that was altered is none");

// --- A rollout in waves --------------------------------------------------------------------------------

const { rollout } = await hear();
await page.goto(`/jobs/${rollout}`);
await page.locator("#job-rollout", { hasText: "held: waits for somebody to resume it" }).waitFor();
await accessible(page, "rollout");
await shoot(page, "rollout");
await page.locator("#do-resume").click();
await dialog.waitFor();
await accessible(page, "dialog");
await dialog.getByRole("button", { name: "Resume rollout" }).click();
await page.locator("#job-rollout", { hasText: /Wave 2: a wave is under way/ }).waitFor();
tell("resumed");
await hear();
await page.locator("#do-abort").click();
await dialog.getByRole("button", { name: "Abort rollout" }).click();
await page.locator("#job-rollout", { hasText: "stopped: no further node starts" }).waitFor();
tell("aborted");
await hear();
await page.locator("#job-head .badge", { hasText: /cancelled|partially failed/ }).waitFor();
sound();
await browser.close();
tell("done");
process.exit(0);
