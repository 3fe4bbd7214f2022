/**
 * Rules for every test of the workspace: no console output, no connections except to this machine, seeded properties, one
 * core, and a quick comparison of tensors.
 */
import { existsSync, readFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { Socket } from 'node:net';
import os from 'node:os';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, chai, expect } from 'vitest';

/** Files share one process: install the hooks once. */
const installed = Symbol.for('@winnow/test-utils/setup');
const methods = ['debug', 'error', 'info', 'log', 'trace', 'warn'];
const { originals, violations } = (globalThis[installed] ??= install());

function install() {
  const found = [];
  const connect = Socket.prototype.connect;
  Socket.prototype.connect = function (...connectArguments) {
    const normalized = Array.isArray(connectArguments[0]) ? connectArguments[0] : connectArguments;
    const first = normalized[0];
    const isOptions = typeof first === 'object' && first !== null;
    const host = isOptions ? first.host : typeof first === 'number' ? normalized[1] : undefined;
    const isPath = isOptions ? first.path !== undefined : typeof first === 'string';
    if (!isPath && typeof host !== 'function' && !isLoopback(host)) {
      found.push(`connected to ${host}, but tests may only connect to this machine`);
      this.destroy(new Error(`tests must not connect to ${host}`));
      return this;
    }
    return Reflect.apply(connect, this, connectArguments);
  };
  expect.addEqualityTesters([haveSameNumbers]);
  chai.config.useProxy = false; // slow, and of use only for properties that TypeScript rejects
  return { originals: new Map(methods.map((name) => [name, console[name]])), violations: found };
}

/**
 * The tests of several packages run at the same time, each in a process of its own. So models compute on one thread unless
 * a test asks for more, and threads that wait for others soon sleep instead of occupying a core. `pnpm test:full` uses
 * the machine's cores.
 */
function claimOneCore() {
  if (process.env.WINNOW_TEST === 'full') return;
  os.availableParallelism = () => 1;
  syncBuiltinESMExports();
}

/** Equality of typed arrays for `toEqual`, whose walk over their keys takes longer than most computations of a test. */
function haveSameNumbers(a, b) {
  const areArrays = ArrayBuffer.isView(a) && !(a instanceof DataView) && a.constructor === b?.constructor;
  if (!areArrays) return undefined;
  const [left, right] = /** @type {[Float64Array, Float64Array]} */ (/** @type {unknown} */ ([a, b]));
  if (left.length !== right.length) return false;
  const [bytes, others] = [left, right].map(({ buffer, byteOffset, byteLength }) =>
    Buffer.from(buffer, byteOffset, byteLength),
  );
  // NaN of other bits is equal
  return bytes.equals(others) || left.every((value, i) => Object.is(value, right[i]));
}

function isLoopback(host) {
  return host === undefined || host === 'localhost' || host === '::1' || host.startsWith('127.') || host === '0.0.0.0';
}

/**
 * Property tests draw the same values in every `npm test`, so that what fails is what changed. `pnpm test:full` draws
 * others each time, and fast-check prints the seed of a failure.
 */
async function seedProperties() {
  const manifest = join(process.cwd(), 'node_modules', 'fast-check', 'package.json');
  if (process.env.WINNOW_TEST === 'full' || !existsSync(manifest)) return;
  const { module } = JSON.parse(readFileSync(manifest, 'utf8'));
  // the module that tests import: what `require` finds is another one, with parameters of its own
  const { configureGlobal } = await import(pathToFileURL(join(dirname(manifest), module)).href);
  configureGlobal({ seed: 1 });
}

/** Tests compute the same whether or not the native kernels were compiled; those of native kernels ask for them. */
process.env.WINNOW_NATIVE = 'off';
claimOneCore();
await seedProperties();

beforeEach(() => {
  violations.length = 0;
  for (const name of methods) {
    console[name] = (...values) => {
      violations.push(`wrote to console.${name}, tests are silent: ${String(values[0]).slice(0, 200)}`);
      originals.get(name).apply(console, values);
    };
  }
});

afterEach(() => {
  for (const [name, method] of originals) console[name] = method;
  if (violations.length > 0) throw new Error(violations.join('\n'));
});
