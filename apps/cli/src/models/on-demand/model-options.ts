/**
 * Converts the options of `loadModel` in the settings of a model, which have the same groups, to the flags that they
 * stand for.
 */
import type { Option } from 'commander';
import { isRecord, type NameTree } from '@winnow/tensor';
import { UsageError } from '../../errors/errors.js';
import { flagOf, loadOptionsWithFlags } from '../../errors/names.js';
import type { LoadFlags } from '../../flags/load.js';
import type { ModelFlags } from './settings.js';

/** Values whose flags have another notation. */
const notations: Readonly<Record<string, (value: unknown) => unknown>> = {
  'kvCache.dtype': (value) => (isKvDTypes(value) ? `${value.keys},${value.values}` : value),
  native: (value) => (value === true ? 'on' : value === false ? 'off' : value),
};

/** Names inside values of flags. */
const innerPaths = ['kvCache.dtype.keys', 'kvCache.dtype.values', 'lora.adapters.source', 'lora.adapters.scale'];

function isKvDTypes(value: unknown): value is { readonly keys: string; readonly values: string } {
  return isRecord(value) && typeof value['keys'] === 'string' && typeof value['values'] === 'string';
}

type Refuse = (place: string, expected: string, actual: unknown) => UsageError;

/** Reads options of models, which the flags of the command check. */
export class ModelOptionsReader {
  /** Names of all options, for `checkOptions`. */
  readonly names: NameTree;
  readonly #options: ReadonlyMap<string, Option>;
  /** Paths of groups; the root is the empty path. */
  readonly #groups: ReadonlySet<string>;
  readonly #refuse: Refuse;

  /** @param options the flags that a model may have */
  constructor(options: readonly Option[], refuse: Refuse) {
    const byFlag = new Map(options.map((option) => [option.long, option]));
    const found = loadOptionsWithFlags.map((path) => [path, byFlag.get(flagOf(path))] as const);
    this.#options = new Map(found.flatMap(([path, option]) => (option === undefined ? [] : [[path, option]])));
    this.#groups = new Set([...this.#options.keys()].map((path) => path.slice(0, Math.max(0, path.lastIndexOf('.')))));
    this.names = treeOf([...this.#options.keys(), ...innerPaths]);
    this.#refuse = refuse;
  }

  /** @throws {UsageError} for an option of the wrong type, or one that its flag rejects */
  read(values: Readonly<Record<string, unknown>>, place: string): Partial<ModelFlags> {
    const flags: Record<string, unknown> = {};
    this.#readGroup(values, '', place, flags);
    return flags;
  }

  #readGroup(group: Readonly<Record<string, unknown>>, prefix: string, place: string, flags: object): void {
    for (const [name, value] of Object.entries(group)) {
      const path = prefix + name;
      const at = `${place}.${name}`;
      const option = this.#options.get(path);
      if (path === 'lora.adapters') Object.assign(flags, this.#adapters(value, at));
      else if (isRecord(value) && this.#groups.has(path)) this.#readGroup(value, `${path}.`, at, flags);
      else if (option === undefined) throw this.#refuse(at, 'an object', value);
      else Object.assign(flags, { [option.attributeName()]: this.#flag(option, path, value, at) });
    }
  }

  #adapters(value: unknown, place: string): Pick<LoadFlags, 'lora' | 'loraScaled'> {
    const expected = 'a list of { "source": FILE, "scale": 1 }';
    if (!Array.isArray(value)) throw this.#refuse(place, expected, value);
    const [lora, loraScaled]: [string[], string[]] = [[], []];
    for (const item of value as unknown[]) {
      const { source, scale } = isRecord(item) ? item : {};
      if (typeof source !== 'string' || source === '' || !(scale === undefined || typeof scale === 'number')) {
        throw this.#refuse(place, expected, item);
      }
      if (scale === undefined) lora.push(source);
      else loraScaled.push(`${source}:${scale}`);
    }
    return { lora, loraScaled };
  }

  /** A value is parsed as on the command line, so that it has the same meaning and the same errors. */
  #flag(option: Option, path: string, given: unknown, place: string): unknown {
    const value = notations[path]?.(given) ?? given;
    if (option.isBoolean() || option.negate) {
      if (typeof value === 'boolean') return value;
      throw this.#refuse(place, 'true or false', given);
    }
    if (typeof value !== 'string' && typeof value !== 'number') {
      throw this.#refuse(place, 'a string or a number', given);
    }
    try {
      const parse = option.parseArg as ((text: string, previous: unknown) => unknown) | undefined;
      return parse === undefined ? String(value) : parse(String(value), undefined);
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      throw new UsageError(error.message.replace(/^--[a-z-]+/, place));
    }
  }
}

/** `kvCache.dtype` as `{ kvCache: { dtype: true } }`. */
function treeOf(paths: readonly string[]): NameTree {
  const tree: Record<string, true | NameTree> = {};
  for (const path of paths) {
    const [name = '', ...inner] = path.split('.');
    const insides = paths.filter((other) => other.startsWith(`${name}.`)).map((other) => other.slice(name.length + 1));
    tree[name] = inner.length === 0 && insides.length === 0 ? true : treeOf(insides);
  }
  return tree;
}
