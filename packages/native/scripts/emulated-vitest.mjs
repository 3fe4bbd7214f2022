/**
 * A stand-in for vitest with the functions that test/emulated.ts of the WebAssembly backend uses. Vitest has native code for the host's
 * processor, so a Node that runs under an emulator cannot load it. WINNOW_TEST_NAMES is a pattern of the names of tests to run.
 */
import { deepStrictEqual, ok } from 'node:assert';
import { format } from 'node:util';

const pattern = new RegExp(process.env.WINNOW_TEST_NAMES ?? '');
const tests = [];
let names = [];
const pending = [];

/** `$name` is not filled in: the values follow the name, cut to twelve words. */
function each(cases, define) {
  return (name, body) => {
    for (const one of cases) {
      const values = Array.isArray(one) ? one : [one];
      define(
        format(name, ...values)
          .split(' ')
          .slice(0, 12)
          .join(' '),
        () => body(...values),
      );
    }
  };
}

export function describe(name, body) {
  const outer = names;
  names = [...names, name];
  pending.push(body());
  names = outer;
}
describe.each = (cases) => each(cases, describe);

export function test(name, body) {
  tests.push({ name: [...names, name].join(' > '), body });
}
test.each = (cases) => each(cases, test);

/** The suites of @winnow/conformance import these two, and test/emulated.ts does not call them. */
export const it = () => undefined;
export const beforeAll = () => undefined;
/** Backends are not disposed: the process ends after the last test. */
export const afterAll = () => undefined;

export function expect(actual, message) {
  return {
    toBe: (expected) => ok(Object.is(actual, expected), message ?? format('%o instead of %o', actual, expected)),
    toEqual: (expected) => deepStrictEqual(actual, expected),
    toBeLessThanOrEqual: (limit) => ok(actual <= limit, message ?? `${actual} is more than ${limit}`),
    toBeGreaterThan: (limit) => ok(actual > limit, message ?? `${actual} is not more than ${limit}`),
  };
}

/** Runs the tests when all modules have been loaded; the process fails if one does, or if there are none. */
async function runTests() {
  setInterval(() => undefined, 1000); // what tests wait for need not keep the process alive
  await Promise.all(pending);
  const selected = tests.filter(({ name }) => pattern.test(name));
  let numFailures = 0;
  for (const { name, body } of selected) {
    try {
      await body();
    } catch (error) {
      numFailures++;
      process.stderr.write(`${name}: ${error.stack}\n`);
    }
  }
  process.stderr.write(`${selected.length} tests, of which ${numFailures} fail\n`);
  process.exit(selected.length > 0 && numFailures === 0 ? 0 : 1);
}
process.once('beforeExit', runTests);
