// The example pages, as people use them.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { base, device, stage, until } from './chromium.mjs';

const whole = await stage('/text?n=200');

for (const name of ['eventsource', 'fetch']) {
  const open = async (run) => {
    const { context, close } = await device();
    try {
      const page = await context.newPage();
      await page.goto(`${base}/${name}.html`);
      await page.getByLabel('Your question').fill('hi');
      await page.getByText('Send').click();
      const answer = () => page.locator('#answer').textContent();
      const more = async () => {
        const { length } = await answer();
        await until('more comes', async () => (await answer()).length > length);
      };
      await more();
      await run({ page, answer, more, ended: word => page.getByRole('status').getByText(word, { exact: true }).waitFor() });
    } finally {
      await close();
    }
  };

  test(`${name}: a cut, a reload, and nothing is lost`, { timeout: 60_000 }, () => open(async on => {
    const calls = await stage('/calls?case=');
    await stage('/cut');
    await on.more();
    await stage('/reload');
    await on.ended('stop');
    assert.equal(await on.answer(), whole);
    assert.equal(await stage('/calls?case='), calls);
  }));

  test(`${name}: stop`, { timeout: 60_000 }, () => open(async on => {
    await on.page.getByText('Stop').click();
    await on.ended(name === 'fetch' ? 'signal is aborted without reason' : 'cancelled');
    const got = await on.answer();
    assert.ok(got.length < whole.length && whole.startsWith(got));
  }));
}
