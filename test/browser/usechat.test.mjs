// The example with useChat of Vercel's AI SDK, as people use it.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { base, device, stage, until } from './chromium.mjs';

const tokens = 300;
const whole = await stage(`/text?n=${tokens}`);

async function open(context, url = `${base}/`) {
  const page = await context.newPage();
  await page.goto(url);
  const answer = () => page.locator('li.assistant span').last().textContent({ timeout: 10_000 });
  return {
    page, answer,
    ask: async () => {
      await page.getByLabel('Your question').fill('hi');
      await page.getByText('Send').click();
    },
    begun: () => until('text comes', async () => (await answer()).length > 40),
    status: word => page.getByRole('status').getByText(word, { exact: true }).waitFor(),
  };
}

function play(name, run, allowed = []) {
  test(name, { timeout: 60_000 }, async () => {
    const { context, complaints, close } = await device();
    try {
      await run(context);
      assert.deepEqual(complaints.filter(text => !allowed.some(pattern => pattern.test(text))), []);
    } finally {
      await close();
    }
  });
}

play('an answer', async context => {
  const on = await open(context);
  await on.ask();
  await on.begun();
  await on.status('ready');
  assert.equal(await on.answer(), whole);
});

play('a page that is reloaded in mid-answer goes on', async context => {
  const on = await open(context);
  const calls = await stage('/calls?case=');
  await on.ask();
  await on.begun();
  await on.page.reload();
  await on.begun();
  await on.status('ready');
  assert.equal(await on.answer(), whole);
  assert.deepEqual(await on.page.locator('li').evaluateAll(list => list.map(item => item.className)), ['user', 'assistant']);
  assert.equal(await stage('/calls?case='), calls + 1);
  // and what is over stays over
  await on.page.reload();
  await on.status('ready');
  assert.equal(await on.answer(), whole);
});

play('a second tab follows', async context => {
  const on = await open(context);
  await on.ask();
  await on.begun();
  const second = await open(context, on.page.url());
  await second.begun();
  await Promise.all([on.status('ready'), second.status('ready')]);
  assert.equal(await on.answer(), whole);
  assert.equal(await second.answer(), whole);
});

play('stop stops, for every tab', async context => {
  const on = await open(context);
  await on.ask();
  await on.begun();
  const second = await open(context, on.page.url());
  await second.begun();
  const cancelled = await stage('/cancelled?case=');
  await second.page.getByText('Stop').click();
  await Promise.all([on.status('ready'), second.status('ready')]);
  const got = await on.answer();
  assert.ok(got.length < whole.length && whole.startsWith(got), got);
  await until('the upstream is cancelled', async () => await stage('/cancelled?case=') > cancelled);
});

play('a cut, and on', async context => {
  const on = await open(context);
  await on.ask();
  await on.begun();
  await stage('/cut');
  await until('the answer is whole', async () => await on.answer() === whole);
  await on.status('ready');
}, [/net::ERR_/]);
