import { expect, test } from 'vitest';
import { ArgumentError } from './errors.js';
import { checkOptions, nearestName, UnknownOptionError, type OptionNames } from './options.js';

interface Cache {
  readonly dtype?: string | { readonly keys: string; readonly values: string };
  readonly offload?: { readonly folder?: string | URL };
}

interface Options {
  readonly context?: number;
  readonly batchSize?: number;
  readonly threads?: number;
  readonly trace?: { readonly attention?: boolean };
  readonly attention?: string;
  readonly memory?: number | { readonly budget?: number };
  readonly kvCache?: Cache;
  readonly adapters?: readonly { readonly source: string; readonly scale?: number }[];
  readonly variables?: Readonly<Record<string, unknown>>;
  readonly onEvent?: (text: string) => void;
}

const names: OptionNames<Options> = {
  context: true,
  batchSize: true,
  threads: true,
  trace: { attention: true },
  attention: true,
  memory: { budget: true },
  kvCache: { dtype: { keys: true, values: true }, offload: { folder: true } },
  adapters: { source: true, scale: true },
  variables: true,
  onEvent: true,
};

const check = (options: unknown): void => checkOptions(options as Options, names);

test('accepts every option, groups as values, and anything inside values', () => {
  const { href } = new URL('file:///tmp');
  check({});
  check({ context: 1, batchSize: undefined, memory: 5, onEvent: () => {}, variables: { contxt: 1 } });
  check({ memory: { budget: 5 }, kvCache: { dtype: 'f16', offload: { folder: new URL(href) } } });
  check({ kvCache: { dtype: { keys: 'f16', values: 'f32' } }, adapters: [{ source: 'a', scale: 2 }] });
});

test.each([
  [{ contxt: 1 }, 'unknown option "contxt"; did you mean "context"?'],
  [{ contextSize: 1 }, 'unknown option "contextSize"; did you mean "context"?'],
  [{ numThreads: 1 }, 'unknown option "numThreads"; did you mean "threads"?'],
  [{ atention: 'dense' }, 'unknown option "atention"; did you mean "attention"?'],
  [{ trace: { atention: true } }, 'unknown option "trace.atention"; did you mean "trace.attention"?'],
  [{ batch_size: 1 }, 'unknown option "batch_size"; did you mean "batchSize"?'],
  [{ kvCache: { dtyp: 'f16' } }, 'unknown option "kvCache.dtyp"; did you mean "kvCache.dtype"?'],
  [
    { kvCache: { offload: { foldr: '' } } },
    'unknown option "kvCache.offload.foldr"; did you mean "kvCache.offload.folder"?',
  ],
  [{ kvCache: { dtype: { key: 'f16' } } }, 'unknown option "kvCache.dtype.key"; did you mean "kvCache.dtype.keys"?'],
  [{ dtype: 'f16' }, 'unknown option "dtype"; did you mean "kvCache.dtype"?'],
  [{ kvCache: { threads: 1 } }, 'unknown option "kvCache.threads"; did you mean "threads"?'],
  [{ adapters: [{ source: '' }, { scal: 1 }] }, 'unknown option "adapters[1].scal"; did you mean "adapters[1].scale"?'],
  [{ memory: { zzzzzz: 1 } }, 'unknown option "memory.zzzzzz"; expected one of budget'],
  [{ toString: 1 }, 'unknown option "toString"; expected one of context, batchSize'],
])('%j', (options, message) => {
  const error = thrownBy(() => check(options));
  expect(error).toBeInstanceOf(UnknownOptionError);
  expect(UnknownOptionError.isInstance(error)).toBe(true);
  expect((error as UnknownOptionError).code).toBe('argument');
  expect((error as UnknownOptionError).message).toContain(message);
});

test.each([[null], [4096], ['4096'], [[]]])('rejects %j, which is not an object', (options) => {
  expect(thrownBy(() => check(options))).toBeInstanceOf(ArgumentError);
});

test('a list of names that lacks an option does not compile', () => {
  // @ts-expect-error `offload` is missing
  const lacking: OptionNames<Cache> = { dtype: true };
  // @ts-expect-error the names of a group are missing
  const flat: OptionNames<Pick<Options, 'memory'>> = { memory: true };
  // @ts-expect-error there is no such option
  const wrong: OptionNames<Pick<Options, 'context'>> = { context: true, contxt: true };
  expect([lacking, flat, wrong]).toHaveLength(3);
});

function thrownBy(task: () => void): unknown {
  try {
    task();
  } catch (error) {
    return error;
  }
  return expect.unreachable();
}

test('nearestName suggests the likely name', () => {
  const known = ['dense', 'sparq', 'h2o-prefill', 'h2o', 'streaming'];
  expect(['h20', 'Streamin', 'sparkq', 'foo', ''].map((name) => nearestName(name, known))).toEqual([
    ...['h2o', 'streaming', 'sparq', undefined, undefined],
  ]);
});
