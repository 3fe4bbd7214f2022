/** The scripts by their names as commands of the connection. */
import { claimScript, enqueueScript, holderScript } from './claims.js';
import { library } from './library.js';
import {
  batchesScript,
  cancelScript,
  countsScript,
  eventsScript,
  listScript,
  queuesScript,
  removeScript,
} from './reports.js';

export type ScriptName =
  | 'enqueue'
  | 'claim'
  | 'holder'
  | 'cancel'
  | 'remove'
  | 'list'
  | 'counts'
  | 'queues'
  | 'batches'
  | 'events';

const bodies: Readonly<Record<ScriptName, string>> = {
  enqueue: enqueueScript,
  claim: claimScript,
  holder: holderScript,
  cancel: cancelScript,
  remove: removeScript,
  list: listScript,
  counts: countsScript,
  queues: queuesScript,
  batches: batchesScript,
  events: eventsScript,
};

const scriptOf = (body: string): string =>
  `${library}\nlocal function main()\n${body}\nend\nlocal reply = main()\nflush()\nreturn reply`;

export const scripts: readonly { readonly name: ScriptName; readonly lua: string }[] = (
  Object.keys(bodies) as ScriptName[]
).map((name) => ({ name, lua: scriptOf(bodies[name]) }));
