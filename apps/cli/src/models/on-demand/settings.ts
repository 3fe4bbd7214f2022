/** `--models-file`: the settings of single models, which have the names of flags in camel case. */
import { readFileSync } from 'node:fs';
import { Command, type Option } from 'commander';
import type { EmbeddingModel } from '@winnow/engine';
import { isRecord, nearestName } from '@winnow/tensor';
import { UsageError } from '../../errors/errors.js';
import type { LoadFlags } from '../../flags/load.js';

/** Flags of a model. */
export interface ModelFlags extends LoadFlags {
  readonly pooling?: EmbeddingModel['pooling'];
}

/** The settings of a model. */
export interface ModelSettings {
  /** A path, a URL or a repository of the hub. Default: the model of this name in the folder or on the hub. */
  readonly model: string | undefined;
  readonly aliases: readonly string[];
  /** Idle time in seconds after which it is unloaded. */
  readonly unloadAfter: number | undefined;
  readonly flags: Partial<ModelFlags>;
}

export interface SettingsFile {
  readonly defaults: Partial<ModelFlags>;
  readonly models: ReadonlyMap<string, ModelSettings>;
}

export const noSettings: SettingsFile = { defaults: {}, models: new Map() };

/**
 * @param options the flags that a model may have
 * @throws {UsageError} naming the place of what is wrong
 */
export function readSettings(path: string, options: readonly Option[]): SettingsFile {
  const reader = new SettingsReader(path, options);
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    throw new UsageError(`--models-file: ${path} cannot be read: ${(error as Error).message}`);
  }
  return reader.file(value);
}

class SettingsReader {
  readonly #path: string;
  readonly #options: ReadonlyMap<string, Option>;

  constructor(path: string, options: readonly Option[]) {
    this.#path = path;
    this.#options = new Map(options.filter(({ hidden }) => !hidden).map((each) => [each.attributeName(), each]));
  }

  file(value: unknown): SettingsFile {
    const { defaults = {}, models = {}, ...rest } = this.#object(value, 'the file');
    this.#noOthers(Object.keys(rest), '', ['defaults', 'models']);
    const named = Object.entries(this.#object(models, 'models')).map(
      ([id, model]) => [id, this.#model(id, model)] as const,
    );
    const settings = { defaults: this.#flags(this.#object(defaults, 'defaults'), 'defaults'), models: new Map(named) };
    this.#checkNames(settings.models);
    return settings;
  }

  #model(id: string, value: unknown): ModelSettings {
    const place = `models.${id}`;
    if (id === '') throw this.#refuse(place, 'an id', id);
    const { model, aliases = [], unloadAfter, ...rest } = this.#object(value, place);
    if (model !== undefined && typeof model !== 'string') throw this.#refuse(`${place}.model`, 'a text', model);
    if (!Array.isArray(aliases) || !aliases.every((alias) => typeof alias === 'string' && alias !== '')) {
      throw this.#refuse(`${place}.aliases`, 'a list of names', aliases);
    }
    if (unloadAfter !== undefined && !(typeof unloadAfter === 'number' && unloadAfter >= 0)) {
      throw this.#refuse(`${place}.unloadAfter`, 'a number of seconds from 0', unloadAfter);
    }
    return { model, aliases: aliases as string[], unloadAfter, flags: this.#flags(rest, place) };
  }

  /** @throws {UsageError} when a name means two models */
  #checkNames(models: SettingsFile['models']): void {
    const known = new Set(models.keys());
    for (const [id, { aliases }] of models) {
      for (const alias of aliases) {
        if (known.has(alias)) throw this.#refuse(`models.${id}.aliases`, 'names of one model', alias);
        known.add(alias);
      }
    }
  }

  #flags(values: Readonly<Record<string, unknown>>, place: string): Partial<ModelFlags> {
    this.#noOthers(
      Object.keys(values).filter((name) => !this.#options.has(name)),
      `${place}.`,
      [...this.#options.keys()],
    );
    return Object.fromEntries(
      Object.entries(values).map(([name, value]) => [
        name,
        this.#flag(this.#options.get(name) as Option, value, `${place}.${name}`),
      ]),
    );
  }

  /** A value is parsed as on the command line, so that it has the same meaning and the same errors. */
  #flag(option: Option, value: unknown, place: string): unknown {
    if (option.isBoolean() || option.negate) {
      if (typeof value === 'boolean') return value;
      throw this.#refuse(place, 'true or false', value);
    }
    const texts = Array.isArray(value) ? value : [value];
    if (!texts.every((text) => typeof text === 'string' || typeof text === 'number') || texts.length === 0) {
      throw this.#refuse(place, 'a text or a number', value);
    }
    try {
      const parse = option.parseArg as ((text: string, previous: unknown) => unknown) | undefined;
      if (parse === undefined) return String(texts[0]);
      return texts.reduce<unknown>((previous, text) => parse(String(text), previous), undefined);
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      throw new UsageError(`--models-file: ${this.#path}: ${error.message.replace(/^--[a-z-]+/, place)}`);
    }
  }

  #object(value: unknown, place: string): Record<string, unknown> {
    if (isRecord(value) && !Array.isArray(value)) return value;
    throw this.#refuse(place, 'an object', value);
  }

  #noOthers([unknown]: readonly string[], prefix: string, names: readonly string[]): void {
    if (unknown === undefined) return;
    const near = nearestName(unknown, names);
    const hint = near === undefined ? '' : `; did you mean ${near}?`;
    throw new UsageError(`--models-file: ${this.#path}: ${prefix}${unknown}: unknown setting${hint}`);
  }

  #refuse(place: string, expected: string, actual: unknown): UsageError {
    return new UsageError(
      `--models-file: ${this.#path}: ${place}: expected ${expected}, got ${JSON.stringify(actual)}`,
    );
  }
}

/** The options of commands that only carry flags. */
export function optionsOf(...groups: readonly ((command: Command) => unknown)[]): readonly Option[] {
  const command = new Command();
  for (const add of groups) add(command);
  return command.options;
}
