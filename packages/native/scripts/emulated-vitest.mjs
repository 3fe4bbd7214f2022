/**
 * What the tests of native kernels use of vitest, for Node on an emulated processor: vitest itself consists of native code for the
 * processor of the host. WINNOW_TEST_NAMES is a pattern of the names of tests to run.
 */
import { deepStrictEqual, ok } from 'node:assert';
import { format } from 'node:util';

const pattern = new RegExp(process.env.WINNOW_TEST_NAMES ?? '');
const tests = [];
let names = [];
const pending = [];

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
test.skipIf = (isSkipped) => (isSkipped ? () => undefined : test);
describe.skipIf = (isSkipped) =>
  isSkipped ? Object.assign(() => undefined, { each: () => () => undefined }) : describe;
export const it = Object.assign((name, body) => test(name, body), { each: test.each, skipIf: test.skipIf });

export const beforeAll = (body) => body();
export const afterAll = () => undefined;
export const afterEach = () => undefined;
export const vi = { stubEnv: (name, value) => (process.env[name] = value), unstubAllEnvs: () => undefined };

export function expect(actual, message) {
  return {
    toBe: (expected) => ok(Object.is(actual, expected), message ?? format('%o instead of %o', actual, expected)),
    toEqual: (expected) => deepStrictEqual(actual, expected),
    toBeUndefined: () => ok(actual === undefined, message),
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
