import { expect, test } from 'vitest';
import { createServer } from './create-server.js';
import type { ServerOptions } from './options.js';
import { UnknownOptionError } from '@winnow/tensor';

test.each([
  [{ maxQueue: 4 }, 'unknown option "maxQueue"; did you mean "maxQueued"?'],
  [
    { models: [{ id: 'a', maxSesions: 4 }] },
    'unknown option "models[0].maxSesions"; did you mean "models[0].maxSessions"?',
  ],
])('rejects %j', async (options, message) => {
  const error = await createServer(options as unknown as ServerOptions).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(UnknownOptionError);
  expect((error as UnknownOptionError).message).toBe(message);
});
