/** Calls whose name stands before the JSON object of their arguments. */
import type { NamedShape } from '../formats/call-shapes.js';
import type { CallContext } from './call-context.js';
import { passArguments } from './json-calls.js';
import { readSpace, starts, startsWithOneOf, type Reading } from './text-input.js';

/** Names have at most 128 characters; ids and marks take the rest. */
const maxHeadLength = 320;

/** @returns false if there is no call, in which case everything may have been consumed */
export function* readNamedCalls(context: CallContext, shape: NamedShape): Reading<boolean> {
  const { input, writer } = context;
  for (let count = 0; ; count++) {
    const head = yield* readHead(context, shape.head);
    if (head === undefined) return count > 0;
    input.release();
    writer.startCall(head.name, head.id);
    const isWhole = yield* passArguments(context);
    writer.endCall(isWhole);
    if (!isWhole) return true;
    for (const text of shape.tail) {
      input.keep();
      yield* readSpace(input);
      if (yield* starts(input, text)) input.release();
      else input.restore();
    }
    if (shape.separator === undefined) return true;
    input.keep();
    yield* readSpace(input);
    if ((yield* startsWithOneOf(input, [shape.separator])) === undefined) {
      input.restore();
      return true;
    }
  }
}

/** The name before the first brace that it can stand before. */
function* readHead({ input }: CallContext, pattern: RegExp): Reading<{ name: string; id?: string } | undefined> {
  for (let from = 0; ;) {
    const at = input.rest.indexOf('{', from);
    if (at !== -1 && at <= maxHeadLength) {
      const { name, id } = pattern.exec(input.rest.slice(0, at))?.groups ?? {};
      if (name !== undefined) {
        input.take(at);
        return id === undefined ? { name } : { name, id };
      }
      from = at + 1;
    } else if (input.hasEnded || input.rest.length > maxHeadLength) return undefined;
    else yield;
  }
}
