// Plays the scenarios in Node.js, on the stage that the Go test has set up.
import { test } from 'node:test';

import * as lib from '../../client/index.js';
import { scenarios, Stage } from './scenarios.mjs';

const { LLMSTREAM_URL, LLMSTREAM_STAGE } = process.env;

for (const [name, play] of Object.entries(scenarios)) {
  test(name, { timeout: 60_000 }, async t => {
    const missing = await play(lib, new Stage(LLMSTREAM_URL, LLMSTREAM_STAGE, name.replaceAll(' ', '-')));
    if (missing) t.skip(missing);
  });
}
