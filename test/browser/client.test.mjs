// Plays the scenarios of the client in Chromium, on the stage that the Go test
// has set up.
import { test } from 'node:test';

import { scenarios } from '../client/scenarios.mjs';
import { base, control, device } from './chromium.mjs';

for (const name of Object.keys(scenarios)) {
  test(name, { timeout: 60_000 }, async t => {
    const { context, close } = await device();
    try {
      const page = await context.newPage();
      await page.goto(`${base}/files/test/browser/empty.html`);
      const missing = await page.evaluate(async ([name, control]) => {
        const lib = await import('/files/client/index.js');
        const { scenarios, Stage } = await import('/files/test/client/scenarios.mjs');
        return scenarios[name](lib, new Stage(location.origin, control, name.replaceAll(' ', '-')));
      }, [name, control]);
      if (missing) t.skip(missing);
    } finally {
      await close();
    }
  });
}
