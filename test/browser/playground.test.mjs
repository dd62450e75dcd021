// The page of llm_stream_playground, as people use it.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

import { base, device, stage, until } from './chromium.mjs';

const whole = await stage('/text?n=300');
const shots = process.env.LLMSTREAM_SHOTS; // a folder for screenshots
const axe = await readFile(new URL('node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

// open opens the playground and returns what a test does with it.
async function open(context, url = base) {
  const page = await context.newPage();
  await page.goto(url);
  await page.waitForFunction(() => document.getElementById('model').value); // the last thing that it sets up
  const answer = () => page.locator('#chat .answer').allTextContents().then(list => list.join(''));
  return {
    page, answer,
    followed: () => page.locator('#channel .answer').allTextContents().then(list => list.join('')),
    log: () => page.locator('#log').textContent(),
    ended: word => page.locator('#chat .end', { hasText: word }).waitFor(),
    begun: () => until('text comes', async () => (await answer()).length > 20),
    number: async id => Number.parseFloat(await page.locator(`#${id}`).textContent()),
  };
}

// play runs a test on a device of its own, which must have nothing to complain
// of: no error in a script, nothing that the page's policy forbids.
function play(name, run, { options, allowed = [] } = {}) {
  test(name, { timeout: 60_000 }, async () => {
    const { context, complaints, close } = await device(options);
    try {
      await run(context);
      assert.deepEqual(complaints.filter(text => !allowed.some(pattern => pattern.test(text))), []);
    } finally {
      await close();
    }
  });
}

play('a stream, and what it costs', async context => {
  const on = await open(context);
  // nothing is needed but keys
  await on.page.locator('#chat').focus();
  await on.page.keyboard.press('Tab');
  await on.page.keyboard.press('Control+End');
  await on.page.keyboard.type(' Please.');
  await on.page.keyboard.press('Enter');
  await on.begun();
  assert.equal(await on.page.locator('#send').isDisabled(), true);
  await on.ended('stop, 300 tokens');
  assert.equal(await on.answer(), whole);
  assert.equal(await on.followed(), whole);
  assert.match(await on.page.locator('#chat .question').textContent(), /survive a reload\? Please\.$/);
  assert.match(await on.page.locator('#status').textContent(), /The answer is complete/);
  assert.equal(await on.number('connections'), 1);
  assert.ok(await on.number('ttft') >= 20);
  assert.ok(await on.number('rate') > 10);
  assert.ok(await on.number('wire') > 10); // thousands
  if (shots) await on.page.screenshot({ path: `${shots}/stream.png` });
});

play('a cut, and on at the next token', async context => {
  const on = await open(context);
  await on.page.locator('#send').click();
  await on.begun();
  await on.page.locator('#cut').click();
  await on.ended('stop');
  assert.equal(await on.answer(), whole);
  await until('the channel is whole too', async () => await on.followed() === whole);
  assert.equal(await on.number('connections'), 2);
  assert.match(await on.log(), /the network is cut: 2 connections/);
  assert.match(await on.log(), /this device: .*; back in \d/);
});

play('a cut below the page', async context => {
  const on = await open(context);
  await on.page.locator('#send').click();
  await on.begun();
  await stage('/cut');
  await on.ended('stop');
  assert.equal(await on.answer(), whole);
}, { allowed: [/net::ERR_/] });

play('a reload of the server', async context => {
  const on = await open(context);
  await on.page.locator('#send').click();
  await on.begun();
  await on.page.locator('#reload').click();
  await on.ended('stop');
  assert.equal(await on.answer(), whole);
  await until('the channel is whole too', async () => await on.followed() === whole);
  assert.match(await on.log(), /the server reloads its configuration/);
  assert.equal(await on.number('connections'), 2);
});

play('a second device follows and cancels', async context => {
  const on = await open(context);
  await on.page.locator('#send').click();
  await on.begun();
  const [page] = await Promise.all([context.waitForEvent('page'), on.page.locator('#device').click()]);
  await page.locator('#channel .answer').waitFor();
  await page.locator('#cancel-there').click();
  await on.ended('cancelled');
  await page.locator('#channel .end', { hasText: 'cancelled' }).waitFor();
  const got = await on.answer();
  assert.ok(got.length < whole.length && whole.startsWith(got));
  assert.equal(await on.page.locator('#send').isEnabled(), true);
});

play('Escape cancels', async context => {
  const on = await open(context);
  await on.page.locator('#send').click();
  await on.begun();
  await on.page.keyboard.press('Escape');
  await on.ended('cancelled');
  assert.match(await on.log(), /cancel: cancelled/);
});

play('the page is reloaded in mid-stream', async context => {
  const on = await open(context);
  await on.page.locator('#send').click();
  await on.begun();
  await on.page.reload();
  await on.ended('stop');
  assert.equal(await on.answer(), whole);
});

play('no reload where the site has no endpoint for it', async context => {
  const on = await open(context, `${base}/bare/`);
  await on.page.locator('#reload').click();
  assert.match(await on.page.locator('#command code').textContent(), /^caddy reload /);
  assert.equal(await on.page.locator('#copy').evaluate(button => button === document.activeElement), true);
});

for (const colorScheme of ['light', 'dark']) {
  for (const [kind, viewport] of Object.entries({ desktop: { width: 1200, height: 820 }, phone: { width: 360, height: 740 } })) {
    play(`for everyone: ${kind}, ${colorScheme}`, async context => {
      const on = await open(context);
      await on.page.locator('#send').click();
      await on.begun();
      await on.page.locator('#cut').click();
      await until('it goes on', async () => (await on.answer()).length > 250);
      if (shots) await on.page.screenshot({ path: `${shots}/${kind}-${colorScheme}.png`, fullPage: true });
      await on.ended('stop');
      await on.page.evaluate(axe);
      const { violations } = await on.page.evaluate(() => axe.run());
      assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map(node => node.html)]), []);
      const wide = await on.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${wide} pixels too wide`);
    }, { options: { colorScheme, viewport, bypassCSP: false } });
  }
}

test('nobody but the page reloads the server', async () => {
  for (const site of [undefined, 'cross-site', 'same-site', 'none']) {
    const { status } = await fetch(`${base}/demo/reload`, { method: 'POST', headers: site ? { 'Sec-Fetch-Site': site } : {} });
    assert.equal(status, 404, site); // the backend's
  }
  const { status } = await fetch(`${base}/demo/reload`, { method: 'POST', headers: { 'Sec-Fetch-Site': 'same-origin' } });
  assert.equal(status, 200);
});
